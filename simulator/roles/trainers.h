// The trainers of a simulated site (training.h), in virtual time, behind the interface of edge/service.
#pragma once

#include "core/base/rng.h"
#include "edge/service/trainers.h"
#include "simulator/roles/cast.h"
#include "simulator/roles/training.h"

namespace fluvial::simulator {

// A task's time, drawn; a slow site takes longer.
Duration training_time(const Cast& cast, HostId host, Rng& rng);

class SiteTrainers final : public edge::Trainers {
 public:
  SiteTrainers(Cast& cast, HostId host);

  const TrainingResult& last() const { return last_; }  // for the checks

  Status open(Events) override { return {}; }
  void stop() override {}
  void train(edge::TrainJob job, Done done) override;
  void committed(local::CommittedModel) override {}
  void none_committed() override {}
  bool owes(RunId, RoundId) const override { return false; }
  void let_go() override {}
  void run_active(local::ActiveRun) override {}
  void run_ended(local::EndedRun) override {}
  void update_refused(local::RefusedUpdate) override {}
  edge::WorkerOutcomes& outcomes() override { return outcomes_; }
  std::size_t workers() const override { return 1; }
  std::string holders() const override { return ""; }

 private:
  Result<edge::Trained> trained(edge::TrainJob job);
  TrainingResult taught(const edge::TrainJob& job);
  TrainingResult made_up(const edge::TrainJob& job);

  Cast& cast_;
  HostId host_;
  Rng rng_;
  TrainingResult last_;
  edge::WorkerOutcomes outcomes_;
};

}  // namespace fluvial::simulator

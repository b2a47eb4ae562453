// What must hold of a run's rounds, whatever the coordinator's process went through: attempts and epochs only grow, a
// round is never reopened as another, nothing is told before it is durable, each round is committed at most once, with
// the sum and the model that its contributors make.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/round/optimizer.h"
#include "core/store/journal.h"
#include "core/store/rows.h"
#include "kernels/reference/optimizer.h"
#include "simulator/checks/report.h"
#include "simulator/checks/truth.h"

namespace fluvial::simulator {

class RoundChecks {
 public:
  RoundChecks(Report report, Truth& truth) : report_(std::move(report)), truth_(truth) {}

  // Of each run, once: with the model's fp32 values.
  void run_started(const store::RunRow& row, std::span<const float> initial);

  // ---- the coordinator's journal
  void journal_opened(store::CoordinatorJournal& journal);  // after each start: nothing known is lost or changed
  void term_began(Epoch term);
  void lease_granted(const store::LeaseRow& lease);
  void attempt_recorded(const store::AttemptRow& attempt);
  // Before the journal is asked: the sum that the model was made from, and the model. Empty spans in the sized mode.
  void committing(const store::CommitRow& row, int scale_bits, std::span<const std::int64_t> sum,
                  std::span<const float> model);
  void committed(const store::CommitRow& row);  // it is durable

  void quarantined(SiteId site) { quarantined_.insert(site); }  // durably, and the machine has been told

  // ---- what is said and summed
  // By the coordinator, into its sum: `participants` are under the leases that its machine goes by. What is in stays in
  // when its site moves later, also when a later attempt's record says so.
  void taking(RunId run, const round::ContributorSet& contributors,
              const std::vector<round::Participant>& participants);
  void opening_sent(RunId run, RoundId round, AttemptId attempt, Epoch epoch);  // by the coordinator
  void commit_sent(RunId run, RoundId round, const Digest& model);              // by the coordinator
  void sum_sealed(NodeId node, RunId run, RoundId round, const round::ContributorSet& contributors, int scale_bits,
                  std::span<const std::int64_t> sum);

  // ---- what others ask
  const store::CommitRow* commit_of(RunId run, RoundId round) const;
  bool holds(RunId run, RoundId round, SiteId site, const Digest& digest) const;
  bool is_decided(RunId run, RoundId round) const;  // committed, or the run is over
  void run_ended(RunId run) { ended_.insert(run); }
  std::uint64_t committed_count() const { return committed_count_; }
  const std::string& trace() const { return trace_; }

 private:
  struct Run {
    store::RunRow row;
    std::optional<store::AttemptRow> attempt;
    std::map<RoundId, store::CommitRow> commits;
    std::optional<store::CommitRow> in_doubt;  // asked for, not answered
    std::vector<float> model;                  // of the last commit
    std::vector<float> model_in_doubt;
    kernels::reference::OptimizerState state;
    kernels::reference::OptimizerState state_in_doubt;
    Digest digest{};
  };
  void check_model(Run& run, const store::CommitRow& row, int scale_bits, std::span<const std::int64_t> sum,
                   std::span<const float> model);
  void check_contributors(const Run& run, const store::CommitRow& row);
  void settle(Run& run, const store::CommitRow& row);
  bool say(bool holds, std::string_view invariant, std::string detail);
  Run* find(RunId run);

  Report report_;
  Truth& truth_;
  std::map<RunId, Run> runs_;
  std::set<RunId> ended_;
  std::set<SiteId> quarantined_;
  Epoch greatest_;
  std::map<NodeId, store::LeaseRow> leases_;
  std::uint64_t committed_count_ = 0;
  std::string trace_;
};

}  // namespace fluvial::simulator

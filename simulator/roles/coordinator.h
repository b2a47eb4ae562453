// The coordinator's process: what coordinator/service does with its machine's decisions, in virtual time. The journal,
// the model files and their crashes are real; so are the book of nodes, the machine, the sum and the optimizer.
#pragma once

#include <memory>
#include <optional>
#include <set>

#include "coordinator/logic/federation.h"
#include "coordinator/logic/run_machine.h"
#include "coordinator/model/finalise.h"
#include "core/round/told.h"
#include "core/store/journal.h"
#include "core/store/model_store.h"
#include "core/wire/record_mapping.h"
#include "simulator/roles/node_work.h"
#include "simulator/roles/parent_end.h"

namespace fluvial::simulator {

class CoordinatorRole final : public Process, private ParentOwner {
 public:
  CoordinatorRole(Cast& cast, HostId host);

  void start() override;
  void accepted(SessionId session, HostId from) override { children_.accepted(session, from); }
  void connected(SessionId) override {}
  void received(SessionId session, Frame frame) override;
  void closed(SessionId session, const Error&) override { children_.closed(session); }
  void writable(SessionId session) override { children_.writable(session); }

  // ---- as a person would
  void revoke(NodeId node);
  bool enrol(store::NodeRow node);  // anew; whether it is in the journal
  void pause();                     // attend() resumes it
  void stop();                      // attend_end() continues it
  // The open round, as far as revocations and quarantines go: otherwise a person must stop the run.
  bool may_close() const;

 private:
  // ---- children
  Status may_join(const Child& child) override;
  void child_joined(const Child& child) override;
  void child_left(NodeId child) override;
  void members_changed(NodeId child, const v1::MemberChange& change) override;
  void lease_asked(SessionId session, const Identity& peer, const v1::LeaseRequest& request) override;
  Result<transfer::Terms> admit(const transfer::UpdateHead& head) override;
  Result<transfer::Terms> admit(const transfer::PartialHead& head) override;
  std::vector<SiteId> without(const transfer::PartialHead& head) override;
  void arrived(transfer::StagedArrival arrival) override;
  void refused(RunId run, RoundId round, const round::Refusal& refusal) override;
  void declined(NodeId child, const round::Decline& decline) override;
  void outcome_asked(NodeId child, const v1::OutcomeQuery& query) override;
  std::shared_ptr<ModelSlot> model(const round::ModelRef& ref) override;

  // ---- effects
  void carry_out(const coordinator::Effects& effects);
  void carry_out(const coordinator::RecordAttempt& effect);
  void carry_out(const coordinator::OpenRound& effect);
  void carry_out(const coordinator::TellMoved& effect);
  void carry_out(const coordinator::SetTimer& effect);
  void carry_out(const coordinator::Take& effect);
  void carry_out(const coordinator::Release& effect);
  void carry_out(const coordinator::Drop& effect);
  void carry_out(const coordinator::Finalise& effect);
  void carry_out(const coordinator::RecordCommit& effect);
  void carry_out(const coordinator::Publish& effect);
  void carry_out(const coordinator::RecordStatus& effect);
  void carry_out(const coordinator::TellStatus& effect);
  void carry_out(const coordinator::Answer& effect);

  Status open();  // what is on the disk, as the service opens it
  Status take_up(const store::RunRow& row);
  Result<coordinator::NextModel> finalise(const round::CommitRecord& record);
  void members_changed_below(const std::vector<SiteId>& sites_up);
  void sites_changed();
  void send_openings(const std::set<NodeId>& children);
  void tell_moved(const std::vector<SiteId>& sites);
  void node_moved(NodeId node, Epoch lease);
  void send_home();
  void dismiss(const std::vector<NodeId>& nodes);
  void note_conflict(const round::Refusal& refusal);
  void attend();  // somebody sees that the run is paused
  void attend_journal();
  void attend_end();  // somebody continues the run that has ended
  Status continue_run();
  bool is_current(RunId run, RoundId round) const;
  std::size_t substitutes_left() const;  // sites that may still be called into the open round
  transfer::Terms terms() const;
  bool dies(std::string_view point) { return cast_.world().crash_here(host_, point); }
  bool is_dead() const { return !cast_.world().is_up(host_); }
  TimePoint now() { return cast_.world().clock(host_).now(); }
  coordinator::RunMachine& machine() { return *machine_; }
  round::Told::Way way() const;

  Cast& cast_;
  HostId host_;
  ParentEnd children_;
  NodeWork work_;
  Serial serial_;
  std::unique_ptr<store::CoordinatorJournal> journal_;
  std::optional<store::ModelStore> models_;
  coordinator::Federation book_;
  round::Lineage lineage_;
  Epoch epoch_;

  std::optional<coordinator::RunMachine> machine_;
  std::vector<RunId> continues_;
  std::shared_ptr<const round::Schema> schema_;
  std::shared_ptr<const kernels::Codec> codec_;
  aggregate::ServerOptimizer optimizer_;
  std::vector<float> optimizer_state_;
  std::shared_ptr<ModelSlot> slot_;
  std::optional<coordinator::NextModel> next_;
  round::Told told_;
  round::Stopwatch watch_;
  std::optional<TimePoint> home_at_;  // when home_timer_ fires
  bool sites_dirty_ = false;          // of many: looked at soon
  std::uint64_t tokens_ = 0;
  EventId timer_;
  EventId home_timer_;
};

}  // namespace fluvial::simulator

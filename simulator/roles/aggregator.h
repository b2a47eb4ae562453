// An aggregator's process: what aggregator/service does with its machine's decisions, in virtual time. Nothing of it
// outlives it but the number of its incarnation.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "aggregator/logic/region_machine.h"
#include "core/digest/sha256.h"
#include "core/round/pace.h"
#include "core/round/told.h"
#include "core/wire/record_mapping.h"
#include "simulator/roles/child_end.h"
#include "simulator/roles/forgery.h"
#include "simulator/roles/node_work.h"
#include "simulator/roles/parent_end.h"

namespace fluvial::simulator {

class AggregatorRole final : public Process, private ParentOwner, private ChildOwner {
 public:
  AggregatorRole(Cast& cast, HostId host);

  void start() override;
  void accepted(SessionId session, HostId from) override;
  void connected(SessionId session) override;
  void received(SessionId session, Frame frame) override;
  void closed(SessionId session, const Error& why) override;
  void writable(SessionId session) override;

 private:
  // ---- from below
  Status may_join(const Child& child) override;
  void child_joined(const Child& child) override;
  void child_left(NodeId child) override;
  void members_changed(NodeId child, const v1::MemberChange& change) override;
  void lease_asked(SessionId session, const Identity& peer, const v1::LeaseRequest& request) override;
  Result<transfer::Terms> admit(const transfer::UpdateHead& head) override;
  Result<transfer::Terms> admit(const transfer::PartialHead& head) override;
  std::vector<SiteId> without(const transfer::PartialHead& head) override;
  bool may_bring(NodeId child, SiteId site) const;
  void arrived(transfer::StagedArrival arrival) override;
  void refused(RunId run, RoundId round, const round::Refusal& refusal) override;
  void declined(NodeId child, const round::Decline& decline) override;
  void outcome_asked(NodeId child, const v1::OutcomeQuery& query) override;
  std::shared_ptr<ModelSlot> model(const round::ModelRef& ref) override;

  // ---- from above
  Result<round::Standing> standing() override;
  void granted(const round::Lineage& lineage, Epoch lease, std::function<void(const Status&)> done) override;
  void forget_history();
  void parent_up(const ParentLease& lease) override;
  void parent_down(const Error& why) override;
  Status from_parent(Frame frame) override;
  Status round_opened(const v1::RoundOpen& message);
  Status round_committed(const v1::RoundCommit& message);
  Status receipt_came(const v1::Receipt& message);
  Status model_begun(const v1::ModelBegin& message);
  Status model_part(const v1::ModelChunk& message, const Payload& payload);
  void dismissed(const v1::MemberChange& change);
  void ask_run();  // whether the one that it knows of goes on
  void run_told(const v1::RunState& message);
  void start_parentless_timer();
  void want_model(const round::ModelRef& ref);
  void request_model();

  // ---- effects
  void carry_out(const aggregator::Effects& effects);
  void carry_out(const aggregator::ResetSum& effect);
  void carry_out(const aggregator::OpenRound& effect);
  void carry_out(const aggregator::SetTimer& effect);
  void carry_out(const aggregator::Take& effect);
  void carry_out(const aggregator::Release& effect);
  void carry_out(const aggregator::Drop& effect);
  void carry_out(const aggregator::SendPartial& effect);

  struct Sending {  // a partial on its way
    aggregator::SendPartial partial;
    std::uint64_t generation = 0;
    std::size_t next_chunk = 0;
    std::size_t chunk_count = 0;
    Sha256 hash;
  };
  void begin_sending(const aggregator::SendPartial& partial);
  void pump();
  void finish_sending();
  bool is_current(RunId run, RoundId round) const;
  Result<transfer::Terms> terms(bool brings_integers);
  NodeId via(NodeId node) const;
  round::Told::Way way() const;
  bool dies(std::string_view point) { return cast_.world().crash_here(host_, point); }
  bool is_dead() const { return !cast_.world().is_up(host_); }
  TimePoint now() { return cast_.world().clock(host_).now(); }

  struct Below {
    v1::Member member;
    NodeId via;
  };

  Cast& cast_;
  HostId host_;
  ParentEnd children_;
  NodeWork work_;
  std::unique_ptr<ChildEnd> uplink_;  // once the incarnation is known

  std::optional<round::HistoryId> history_;     // of the last lease; none: there was none yet
  Epoch heard_;                                 // the greatest epoch
  std::optional<round::KnownRound> committed_;  // the last that was told
  aggregator::RegionMachine machine_;
  std::optional<wire::Opening> opening_;  // as the parent said it
  std::map<RunId, v1::RunState> over_;    // runs of which the children were told that they are
  TimePoint opened_at_;
  std::shared_ptr<const kernels::Codec> codec_;
  std::uint64_t send_generation_ = 0;  // a partial on its way ends when this moves on
  std::unique_ptr<Sending> sending_;
  Forgery forgery_;
  std::shared_ptr<ModelSlot> slot_;
  bool awaits_base_ = false;     // somebody was turned away because the base is not here yet
  bool model_promised_ = false;  // the slot was asked for on this session, when the parent had named it
  std::map<NodeId, Below> below_;
  round::Told told_;
  round::Stopwatch watch_;
  round::UpwardPace up_;
  bool parent_is_new_ = true;  // no opening has come in this session to the parent yet
  bool parentless_ = false;    // for too long
  EventId timer_;
  EventId parentless_timer_;
};

}  // namespace fluvial::simulator

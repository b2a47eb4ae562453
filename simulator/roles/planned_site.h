// A site of the sized mode (the capacity planner): edge/logic's machine and core/tree's uplink, without a store. It
// trains nothing, only counts a model's bytes, and sends updates that all sites share (stand_ins.h); ten thousand of
// them fit into one world.
#pragma once

#include <memory>
#include <optional>

#include "core/tree/uplink.h"
#include "edge/logic/in_order.h"
#include "edge/logic/site_machine.h"
#include "simulator/node/node.h"
#include "simulator/roles/cast.h"
#include "simulator/roles/malice.h"

namespace fluvial::simulator {

class PlannedSite final : public Node, private tree::UplinkOwner {
 public:
  PlannedSite(Cast& cast, HostId host);
  ~PlannedSite() override;

  void start() override;

 private:
  struct Submission {
    store::PendingInfo info;
    std::shared_ptr<const StandIn> made;
  };
  struct Fetch {
    bool is_of(const round::ModelRef& model) const { return ref.run == model.run && ref.version == model.version; }
    bool is_whole() const { return received == ref.bytes; }

    round::ModelRef ref;
    bool is_named = true;  // false: it comes ahead of its commit
    std::uint64_t received = 0;
    bool promised = false;  // asked for on this session, after the parent had named it
    bool flowing = false;   // begun on this session, not whole yet
  };
  struct Upload {
    std::uint64_t submission = 0;
    Epoch lease;
    RoundId into;
    std::shared_ptr<net::Session> session;
    bool operator==(const Upload&) const = default;
  };

  net::Awaitable<void> serve(std::shared_ptr<net::Session>) override;
  net::Awaitable<Result<round::Standing>> standing() override;
  net::Awaitable<Status> granted(round::Lineage, Epoch) override;
  void parent_up(const tree::Lease& lease) override;
  void parent_down(const Error& why) override;
  net::Awaitable<Status> from_parent(net::Frame frame) override;
  Status take(const v1::Envelope& message, std::uint64_t payload_bytes);
  Status on_round_open(const v1::RoundOpen& message);
  Status on_round_commit(const v1::RoundCommit& message);
  Status on_outcome_reply(const v1::OutcomeReply& message);
  Status on_model_ahead(const v1::ModelAhead& message);
  void take_up();
  Status on_model_begin(const v1::ModelBegin& message);
  Status on_model_chunk(const v1::ModelChunk& message, std::uint64_t payload_bytes);
  void request_model();

  void carry_out(edge::Effects effects);
  void apply(const edge::FetchModel& effect);
  void apply(const edge::Train& effect);
  void apply(const edge::Encode& effect);
  void apply(const edge::Fold& effect);
  void apply(const edge::Send& effect);
  void apply(const edge::StopSending&) { upload_.reset(); }
  void apply(const edge::Ask& effect);
  void apply(const edge::AskRun& effect);
  void apply(const edge::Resolve& effect);
  void apply(const edge::EnterHistory&) {}  // it has none
  void apply(const edge::FetchState&) {}    // nor has its plan several passes
  void apply(const edge::FetchMean&) {}
  void apply(const edge::EncodePass&) {}
  void apply(const edge::DeclineRound& effect);
  void apply(const edge::CompleteRun&) {}
  Result<Submission> make(const edge::Offer& offer);
  net::Awaitable<void> send(Submission submission, Upload upload, std::uint64_t first_chunk);
  void ask_again();
  void later(Duration delay, Action action) { world().after(host(), delay, std::move(action)); }
  NodeId self() const { return cast_.identity(host()).node; }

  Cast& cast_;
  Malice malice_;
  Rng rng_;
  edge::SiteMachine machine_;
  tree::Uplink uplink_;
  edge::InOrder<edge::Effect> effects_;
  std::optional<Fetch> fetch_;
  std::optional<round::ModelRef> held_;
  std::optional<Submission> submission_;
  std::optional<Upload> upload_;
  std::uint64_t submissions_ = 0;  // of this process
};

}  // namespace fluvial::simulator

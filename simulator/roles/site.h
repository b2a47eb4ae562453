// A site's process: what edge/service does with its machine's decisions, in virtual time. Its store, its codecs and its
// residual are real; in the sized mode it has no store, trains nothing, and sends what others send as well.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/backoff.h"
#include "core/digest/sha256.h"
#include "core/store/site_store.h"
#include "edge/logic/site_machine.h"
#include "edge/update/encode.h"
#include "edge/update/resolve.h"
#include "simulator/roles/child_end.h"
#include "simulator/roles/malice.h"
#include "simulator/roles/model_slot.h"
#include "simulator/roles/training.h"

namespace fluvial::simulator {

class SiteRole final : public Process, private ChildOwner {
 public:
  SiteRole(Cast& cast, HostId host);

  void start() override;
  void accepted(SessionId, HostId) override {}
  void connected(SessionId session) override;
  void received(SessionId session, Frame frame) override;
  void closed(SessionId session, const Error& why) override;
  void writable(SessionId session) override;
  bool has_unresolved() const { return machine_ && machine_->has_pending(); }
  bool is_up() const { return uplink_ && uplink_->is_up(); }

 private:
  // A submission that is durable (in the sized mode: would be).
  struct Submission {
    store::PendingInfo info;
    std::optional<store::PendingUpdate> update;
    std::vector<std::string> files;             // that this process wrote for it
    std::shared_ptr<const StandIn> stand_in{};  // in the sized mode, in the place of `update`

    Result<Buffer> read_chunk(std::uint64_t index) const {
      if (stand_in) return Buffer::copy_of(stand_in->chunks[index].span());
      return update->read_chunk(index);
    }
    Result<Buffer> read_trailer() const {
      if (stand_in) return Buffer::copy_of(stand_in->trailer.span());
      return update->read_trailer();
    }
  };
  struct Uploading {
    std::shared_ptr<const Submission> what;
    Epoch lease;
    SessionId session;
    std::uint64_t first_chunk = 0;
    std::uint64_t next_chunk = 0;
    bool refused = false;
    std::optional<std::uint64_t> again;  // asked for meanwhile: from this chunk on
    Malice::Trick trick = Malice::Trick::kNone;
    Sha256 hash;
    std::vector<Buffer> sent;  // where the checks must know
  };

  static edge::Pending pending_of(const store::PendingInfo& info) {
    return {info.start.run, info.start.round, info.digest, info.incarnation, info.submission};
  }

  // ---- histories
  Result<round::Standing> standing() override;
  void granted(const round::Lineage& lineage, Epoch lease, std::function<void(const Status&)> done) override;
  void enter_history();
  Result<std::optional<edge::Pending>> load();

  // ---- messages
  void parent_up(const ParentLease& lease) override;
  void parent_down(const Error& why) override;
  Status from_parent(Frame frame) override;
  Status on_round_open(const v1::RoundOpen& message);
  Status on_round_commit(const v1::RoundCommit& message);
  Status on_receipt(const v1::Receipt& message);
  Status on_run_state(const v1::RunState& message);
  Status on_outcome_reply(const v1::OutcomeReply& message);
  Status on_model_begin(const v1::ModelBegin& message);
  Status on_model_chunk(const v1::ModelChunk& message, const Payload& payload);
  void request_model();
  void model_held();

  // ---- effects
  void carry_out(edge::Effects effects);
  void apply(const edge::FetchModel& effect);
  void apply(const edge::Train& effect);
  void apply(const edge::Encode& effect);
  void apply(const edge::Fold& effect);
  void apply(const edge::Send& effect);
  void apply(const edge::StopSending& effect);
  void apply(const edge::Ask& effect);
  void apply(const edge::AskRun& effect);
  void apply(const edge::Resolve& effect);
  void apply(const edge::EnterHistory& effect);
  void apply(const edge::DeclineRound& effect);
  void apply(const edge::CompleteRun&) {}
  Status open();
  void ask_again();
  Result<std::shared_ptr<const Submission>> encode(const edge::Offer& offer);
  edge::UpdateJob job_of(const edge::Offer& offer) const;
  void resolve(const edge::Pending& pending, round::Outcome outcome);
  bool store_failed();
  void look();
  std::vector<std::string> tensor_files();
  void check_durable(const Submission& submission);
  Trained trained_as(const edge::Offer& offer) const;
  void note_dropped(const edge::Offer& offer, std::uint64_t faults_before, const Error& why);
  Status begin_run(const edge::Offer& offer);
  void pump();
  void upload(Epoch lease, std::uint64_t first_chunk, Malice::Trick trick);
  void send_chunk();
  void send_end();
  Result<std::shared_ptr<const Submission>> stand_in(const edge::Offer& offer);
  bool dies(std::string_view point) { return cast_.world().crash_here(host_, point); }
  bool is_dead() const { return !cast_.world().is_up(host_); }
  NodeId self() const { return cast_.identity(host_).node; }

  Cast& cast_;
  HostId host_;
  Serial serial_;
  Malice malice_;
  Rng rng_;
  std::unique_ptr<store::SiteStore> store_;  // none in the sized mode
  std::unique_ptr<ChildEnd> uplink_;
  std::optional<edge::SiteMachine> machine_;
  round::Lineage lineage_;  // of the history that the store is in
  Epoch heard_;             // the greatest epoch
  struct Entering {
    round::Lineage lineage;
    Epoch lease;
    std::function<void(const Status&)> done;
  };
  std::optional<Entering> entering_;  // another history
  std::deque<edge::Effect> effects_;
  bool carrying_out_ = false;

  std::shared_ptr<ModelSlot> fetching_;
  bool model_promised_ = false;  // asked for on this session, when the parent had named it
  bool flowing_ = false;         // begun on this session, not whole yet
  std::shared_ptr<ModelSlot> held_;
  std::shared_ptr<ModelSlot> trained_from_;
  std::optional<TrainingResult> trained_;
  std::shared_ptr<const Submission> pending_;
  std::unique_ptr<Uploading> uploading_;
  std::uint64_t upload_generation_ = 0;
  std::optional<Backoff> resolve_backoff_;
  std::uint64_t submissions_ = 0;  // in the sized mode: of this process
};

}  // namespace fluvial::simulator

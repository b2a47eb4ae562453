// What the parent says: rounds, commits, receipts, and the model on its way down.
#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <utility>

#include "aggregator/service/region_service.h"
#include "core/digest/sha256.h"
#include "core/transfer/outcome.h"
#include "core/wire/mapping.h"

namespace fluvial::aggregator {

void RegionService::parent_up(const tree::Lease& lease, std::shared_ptr<net::Session>) {
  observer_.parent_up(lease.parent_name);
  tell_parent(members_.everybody());  // also when there is nobody below
  model_promised_ = false;
  request_model();
  ask_run();
  parent_is_new_ = true;
  parentless_ = false;
  parentless_timer_.cancel();
  up_changed_(true);
}

void RegionService::parent_down(const Error& why) {
  observer_.parent_down(why);
  ++send_generation_;                        // a partial on its way is lost; the next Opening asks for it again
  if (opening_) opening_->received.reset();  // what that parent had of it, the next Opening says
  up_.lost();
  up_changed_(false);
  start_parentless_timer();
}

// Its children do not notice that they lead nowhere; the coordinator may have another parent for them.
void RegionService::start_parentless_timer() {
  parentless_timer_.after(parentless_max_, [this] {
    if (uplink_->is_up()) return;
    parentless_ = true;
    std::vector<NodeId> children;
    for (const auto& [child, connected] : hub_.children()) children.push_back(child);
    observer_.parentless(children.size());
    for (const NodeId child : children) {
      hub_.cut(child, {Code::kUnavailable, "this aggregator has lost its own parent: come for a lease"});
    }
  });
}

net::Awaitable<Status> RegionService::from_parent(net::Frame frame) {
  v1::Envelope& message = frame.header;
  switch (message.body_case()) {
    case v1::Envelope::kRoundOpen: co_return round_opened(message.round_open());
    case v1::Envelope::kRoundCommit: co_return round_committed(message.round_commit());
    case v1::Envelope::kReceipt: co_return receipt_came(message.receipt());
    case v1::Envelope::kModelBegin: co_return model_begun(message.model_begin());
    case v1::Envelope::kModelChunk: co_return co_await model_part(message.model_chunk(), std::move(frame.payload));
    case v1::Envelope::kRunState: run_told(message.run_state()); co_return Status{};
    case v1::Envelope::kMemberChange: dismissed(message.member_change()); co_return Status{};
    case v1::Envelope::kOutcomeReply: {
      const SiteId site(message.outcome_reply().site());
      relay_down(site, std::move(message));
      co_return Status{};
    }
    default: co_return Error{Code::kFailedPrecondition, "a message that no parent sends"};
  }
}

// That a run ended while this node was away nobody tells it unasked.
void RegionService::ask_run() {
  if (opening_ && !over_.contains(opening_->run)) uplink_->post(transfer::run_query(opening_->run, self_));
}

// Once each: whoever below asks later is told from here.
void RegionService::run_told(const v1::RunState& message) {
  const RunId run(message.run());
  if (transfer::ends_run(message.state())) {
    if (!over_.emplace(run, message).second) return;
    if (opening_ && opening_->run == run) {
      give_up_round();
    }
  }
  v1::Envelope down;
  *down.mutable_run_state() = message;
  side_.tell_all(down);
}

void RegionService::dismissed(const v1::MemberChange& change) {
  for (const std::uint32_t node : change.down()) {
    if (hub_.children().contains(NodeId(node))) {
      hub_.cut(NodeId(node), {Code::kStale, "the coordinator has another parent for it: come for a lease"});
      continue;
    }
    v1::Envelope down;
    down.mutable_member_change()->add_down(node);
    relay_down(NodeId(node), std::move(down));
  }
}

Status RegionService::round_opened(const v1::RoundOpen& message) {
  FLUVIAL_ASSIGN(wire::Opening opening, wire::from_proto(message));
  if (opening_ && opening.epoch < opening_->epoch) return {};  // an older term's
  FLUVIAL_TRY(transfer::check_room(opening));
  heard_ = std::max(heard_, opening.epoch);
  FLUVIAL_ASSIGN(const kernels::CodecSpec spec, kernels::parse_codec(opening.plan.codec));
  FLUVIAL_ASSIGN(std::unique_ptr<kernels::Codec> codec, kernels::make_codec(spec));
  codec_ = std::move(codec);
  want_model(opening.base);
  opened_at_ = now();
  Subject subject{opening.plan, opening.base, opening.value_count, opening.integer_count};
  if (!is_current(opening.run, opening.round) || machine_.opening().subject != subject) {
    side_.begin();
    up_.lost();
    hub_.book().close();
  }
  opening_ = std::move(opening);
  over_.erase(opening_->run);
  hub_.book().open(opening_->run, opening_->round);
  Opening step{opening_->run,
               opening_->round,
               opening_->attempt,
               opening_->epoch,
               opening_->participants,
               {},
               {},
               opening_->scale_bits,
               opened_at_ + up_.tier_deadline(opening_->soft_left)};
  step.counted.insert(opening_->counted.begin(), opening_->counted.end());
  step.gone.insert(opening_->gone.begin(), opening_->gone.end());
  step.same_session = !std::exchange(parent_is_new_, false);
  step.subject = std::move(subject);
  observer_.round_said(step);
  carry_out(machine_.opened(std::move(step), now()));
  return {};
}

Status RegionService::round_committed(const v1::RoundCommit& message) {
  FLUVIAL_ASSIGN(const wire::Commit commit, wire::from_proto(message));
  if (opening_ && opening_->run == commit.run && opening_->round <= commit.round) {
    if (const auto took = up_.closed(now())) observer_.partial_took(*took);
    give_up_round();
  }
  committed_ = round::KnownRound{commit.run, commit.round, /*decided=*/true};
  want_model(commit.model);
  observer_.committed(commit);
  side_.send_commits(commit);
  return {};
}

// Of what is here of it nobody wants anything any more.
void RegionService::give_up_round() {
  ++send_generation_;
  carry_out(machine_.closed());
  side_.end();
}

Status RegionService::receipt_came(const v1::Receipt& message) {
  if (!is_current(RunId(message.run()), RoundId(message.round()))) return {};
  FLUVIAL_ASSIGN(const std::vector<SiteId> without, wire::from_proto(message.without()));
  const Status status = wire::status_from_proto(message.code(), message.message());
  if (const auto took = up_.answered(message.sequence(), status.ok(), now())) observer_.partial_took(*took);
  if (!status.ok()) observer_.partial_refused(message, status.error());
  carry_out(machine_.receipt(message.sequence(), status, without, now()));
  return {};
}

// ---- the model ----------------------------------------------------------------------------------------------------

void RegionService::want_model(const round::ModelRef& ref) {
  if (!slot_ || slot_->ref() != ref) {
    if (slot_) slot_->abandon();
    slot_ = std::make_shared<tree::ModelSlot>(runtime_.strand, ref);
  } else if (model_promised_) {
    return;  // it is on its way: asking again would send once more what is not here yet
  }
  model_promised_ = true;  // the parent names it: it has it, or gets it
  request_model();
}

void RegionService::request_model() {
  if (!slot_ || slot_->complete()) return;
  v1::Envelope request;
  *request.mutable_model_request()->mutable_model() = wire::to_proto(slot_->ref());
  request.mutable_model_request()->set_offset(slot_->available());
  uplink_->post(std::move(request));
}

std::shared_ptr<tree::ModelSlot> RegionService::model(const round::ModelRef& ref) {
  return slot_ && slot_->ref() == ref ? slot_ : nullptr;
}

Status RegionService::model_begun(const v1::ModelBegin& message) {
  FLUVIAL_ASSIGN(const round::ModelRef ref, wire::from_proto(message.model()));
  if (!slot_ || slot_->ref() != ref || message.offset() != slot_->available()) return {};  // overtaken
  FLUVIAL_ASSIGN(round::Schema schema, wire::from_proto(message.schema()));
  return slot_->begin(std::move(schema));
}

net::Awaitable<Status> RegionService::model_part(v1::ModelChunk message, Buffer bytes) {
  const std::shared_ptr<tree::ModelSlot> slot = slot_;
  if (!slot || slot->ref().run.value() != message.run() || slot->ref().version.value() != message.version() ||
      !slot->begun() || slot->complete() || message.offset() != slot->available()) {
    co_return Status{};  // overtaken
  }
  const Status appended = slot->append(bytes.span());
  if (!appended.ok() || !slot->complete()) co_return appended;
  const Result<Digest> digest = co_await runtime_.pool.run([&]() -> Result<Digest> { return sha256(slot->bytes()); });
  if (!digest.ok()) co_return digest.error();
  if (*digest == slot->ref().digest) {
    if (std::exchange(awaits_base_, false) && machine_.is_open()) send_openings();
    co_return Status{};
  }
  slot->abandon();
  if (slot_ == slot) slot_.reset();
  co_return Error{Code::kDataLoss, "the model's bytes do not have the digest that was announced"};
}

}  // namespace fluvial::aggregator

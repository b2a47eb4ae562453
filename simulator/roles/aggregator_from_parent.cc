// What the parent says: rounds, commits, receipts, and the model on its way down.
#include <utility>

#include "core/transfer/cut.h"
#include "core/transfer/outcome.h"
#include "core/wire/mapping.h"
#include "simulator/roles/aggregator.h"

namespace fluvial::simulator {

Result<round::Standing> AggregatorRole::standing() {
  round::Standing standing{history_.value_or(round::HistoryId(0)), heard_, {}};
  if (committed_) standing.rounds.push_back(*committed_);
  if (machine_.is_open()) standing.rounds.push_back({opening_->run, opening_->round});
  return standing;
}

void AggregatorRole::granted(const round::Lineage& lineage, Epoch lease, std::function<void(const Status&)> done) {
  const round::HistoryId history = round::current_of(lineage);
  if (history_ && history != *history_) {
    if (round::began_of(lineage) <= heard_) return done(round::older_history(lineage, heard_));
    forget_history();
  }
  history_ = history;
  heard_ = std::max({heard_, lease, round::began_of(lineage)});
  std::vector<NodeId> others;
  for (const auto& [node, child] : children_.children()) {
    if (child.history != history) others.push_back(node);
  }
  for (const NodeId node : others) {
    children_.cut(node, {Code::kStale, "the federation has another history: come for a lease"});
  }
  done({});
}

void AggregatorRole::forget_history() {
  ++send_generation_;
  sending_.reset();
  carry_out(machine_.closed());
  work_.drop_all();
  children_.book().close();
  opening_.reset();
  committed_.reset();
  over_.clear();
  told_.clear();
  up_.lost();
  slot_.reset();
}

void AggregatorRole::parent_up(const ParentLease&) {
  v1::Envelope change;
  v1::MemberChange& everything = *change.mutable_member_change();  // also when there is nobody below
  for (const auto& [node, below] : below_) *everything.add_up() = below.member;
  uplink_->post(change);
  model_promised_ = false;
  request_model();
  ask_run();
  parent_is_new_ = true;
  parentless_ = false;
  cast_.world().cancel(parentless_timer_);
}

void AggregatorRole::parent_down(const Error&) {
  ++send_generation_;  // a partial on its way is lost; the next opening asks for it again
  sending_.reset();
  if (opening_) opening_->received.reset();  // what that parent had of it, the next opening says
  up_.lost();
  start_parentless_timer();
}

Status AggregatorRole::from_parent(Frame frame) {
  const v1::Envelope& message = frame.header;
  if (dies("from parent")) return {};
  switch (message.body_case()) {
    case v1::Envelope::kRoundOpen: return round_opened(message.round_open());
    case v1::Envelope::kRoundCommit: return round_committed(message.round_commit());
    case v1::Envelope::kReceipt: return receipt_came(message.receipt());
    case v1::Envelope::kModelBegin: return model_begun(message.model_begin());
    case v1::Envelope::kModelChunk: return model_part(message.model_chunk(), frame.payload);
    case v1::Envelope::kRunState: run_told(message.run_state()); return {};
    case v1::Envelope::kMemberChange: dismissed(message.member_change()); return {};
    case v1::Envelope::kOutcomeReply: {
      const NodeId child = via(NodeId(message.outcome_reply().site()));
      if (child != NodeId(0)) children_.send(child, message);
      return {};
    }
    default: return Error{Code::kFailedPrecondition, "a message that no parent sends"};
  }
}

void AggregatorRole::ask_run() {
  if (!opening_ || over_.contains(opening_->run)) return;
  uplink_->post(transfer::run_query(opening_->run, cast_.identity(host_).node));
}

void AggregatorRole::run_told(const v1::RunState& message) {
  const RunId run(message.run());
  if (transfer::ends_run(message.state())) {
    if (!over_.emplace(run, message).second) return;
    if (opening_ && opening_->run == run) {
      ++send_generation_;  // nobody wants a partial of it any more
      carry_out(machine_.closed());
      work_.drop_all();
      children_.book().close();
    }
  }
  v1::Envelope down;
  *down.mutable_run_state() = message;
  std::vector<NodeId> nodes;
  for (const auto& [node, child] : children_.children()) nodes.push_back(node);
  for (const NodeId node : nodes) children_.send(node, down);
}

void AggregatorRole::dismissed(const v1::MemberChange& change) {
  for (const std::uint32_t node : change.down()) {
    if (children_.children().contains(NodeId(node))) {
      children_.cut(NodeId(node), {Code::kStale, "the coordinator has another parent for it: come for a lease"});
      continue;
    }
    v1::Envelope down;
    down.mutable_member_change()->add_down(node);
    if (const NodeId child = via(NodeId(node)); child != NodeId(0)) children_.send(child, down);
  }
}

Status AggregatorRole::round_opened(const v1::RoundOpen& message) {
  FLUVIAL_ASSIGN(wire::Opening opening, wire::from_proto(message));
  if (opening_ && opening.epoch < opening_->epoch) return {};  // an older term's
  FLUVIAL_TRY(transfer::check_room(opening));
  heard_ = std::max(heard_, opening.epoch);
  FLUVIAL_ASSIGN(const kernels::CodecSpec spec, kernels::parse_codec(opening.plan.codec));
  FLUVIAL_ASSIGN(std::unique_ptr<kernels::Codec> codec, kernels::make_codec(spec));
  codec_ = std::move(codec);
  want_model(opening.base);
  opened_at_ = now();
  aggregator::Subject subject{opening.plan, opening.base, opening.value_count, opening.integer_count};
  if (!is_current(opening.run, opening.round) || machine_.opening().subject != subject) {
    told_.clear();
    watch_.opened(opened_at_);
    up_.lost();
    children_.book().close();
  }
  opening_ = std::move(opening);
  over_.erase(opening_->run);
  children_.book().open(opening_->run, opening_->round);
  aggregator::Opening step{opening_->run,
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
  carry_out(machine_.opened(std::move(step), now()));
  return {};
}

Status AggregatorRole::round_committed(const v1::RoundCommit& message) {
  FLUVIAL_ASSIGN(const wire::Commit commit, wire::from_proto(message));
  if (opening_ && opening_->run == commit.run && opening_->round <= commit.round) {
    ++send_generation_;  // nobody wants a partial of it any more
    up_.closed(now());
    carry_out(machine_.closed());
    work_.drop_all();
    children_.book().close();
    cast_.checks().nothing_staged(host_, children_.budget().bytes_used(), work_.staged_count());
  }
  committed_ = round::KnownRound{commit.run, commit.round, /*decided=*/true};
  want_model(commit.model);
  const auto way = [this](SiteId site) { return via(site); };
  for (const auto& [child, cut] : transfer::cut_commits(commit, transfer::nodes_of(children_.children()), way)) {
    if (dies("commit")) return {};
    children_.send(child, wire::to_envelope(cut));
  }
  return {};
}

Status AggregatorRole::receipt_came(const v1::Receipt& message) {
  if (!is_current(RunId(message.run()), RoundId(message.round()))) return {};
  FLUVIAL_ASSIGN(const std::vector<SiteId> without, wire::from_proto(message.without()));
  const Status status = wire::status_from_proto(message.code(), message.message());
  up_.answered(message.sequence(), status.ok(), now());
  carry_out(machine_.receipt(message.sequence(), status, without, now()));
  return {};
}

// ---- the model
// --------------------------------------------------------------------------------------------------------

void AggregatorRole::want_model(const round::ModelRef& ref) {
  if (!slot_ || slot_->ref() != ref) {
    slot_ = std::make_shared<ModelSlot>(ref);
  } else if (model_promised_) {
    return;  // it is on its way: asking again would send once more what is not here yet
  }
  model_promised_ = true;  // the parent names it: it has it, or gets it
  request_model();
}

void AggregatorRole::request_model() {
  if (!slot_ || slot_->complete()) return;
  v1::Envelope request;
  *request.mutable_model_request()->mutable_model() = wire::to_proto(slot_->ref());
  request.mutable_model_request()->set_offset(slot_->available());
  uplink_->post(request);
}

Status AggregatorRole::model_begun(const v1::ModelBegin& message) {
  FLUVIAL_ASSIGN(const round::ModelRef ref, wire::from_proto(message.model()));
  if (!slot_ || slot_->ref() != ref || message.offset() != slot_->available()) return {};  // overtaken
  FLUVIAL_ASSIGN(round::Schema schema, wire::from_proto(message.schema()));
  return slot_->begin(std::move(schema));
}

Status AggregatorRole::model_part(const v1::ModelChunk& message, const Payload& payload) {
  const std::shared_ptr<ModelSlot> slot = slot_;
  if (!slot || slot->ref().run.value() != message.run() || slot->ref().version.value() != message.version() ||
      !slot->begun() || slot->complete() || message.offset() != slot->available()) {
    return {};  // overtaken
  }
  FLUVIAL_TRY(slot->append(payload.bytes.bytes));
  if (slot->complete() && sha256(slot->bytes()) != slot->ref().digest) {
    slot_.reset();
    return Error{Code::kDataLoss, "the model's bytes do not have the digest that was announced"};
  }
  children_.model_grew(slot);
  if (slot->complete() && std::exchange(awaits_base_, false) && machine_.is_open()) carry_out(aggregator::OpenRound{});
  return {};
}

}  // namespace fluvial::simulator

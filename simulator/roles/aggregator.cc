#include "simulator/roles/aggregator.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/transfer/cut.h"
#include "core/transfer/outgoing.h"
#include "core/wire/mapping.h"
#include "simulator/roles/fence.h"

namespace fluvial::simulator {
namespace {

// How often this folder was opened, durably, as aggregator/service/aggregator.cc keeps it.
Result<Incarnation> next_incarnation(store::FileSystem& files, const std::string& path) {
  std::uint64_t count = 0;
  const Result<Buffer> before = store::read_file(files, path, 8);
  if (before.ok() && before->size() == 8) count = load_le<std::uint64_t>(before->data());
  if (!before.ok() && before.error().code != Code::kNotFound) return before.error();
  std::byte bytes[8];
  store_le<std::uint64_t>(bytes, ++count);
  const ByteSpan parts[] = {ByteSpan(bytes)};
  FLUVIAL_TRY(store::write_file_atomically(files, path, parts));
  return Incarnation(count);
}

}  // namespace

AggregatorRole::AggregatorRole(Cast& cast, HostId host)
    : cast_(cast), host_(host), children_(cast, host, *this), work_(cast, host), forgery_(cast, host) {}

void AggregatorRole::start() {
  store::FileSystem& files = cast_.world().disk(host_).files();
  const auto opened = [&]() -> Result<Incarnation> {
    FLUVIAL_TRY(files.make_folder("spill"));
    return next_incarnation(files, "incarnation");
  };
  const Result<Incarnation> incarnation = opened();
  if (is_dead()) return;
  if (!incarnation.ok()) {
    cast_.world().kill_for(host_, Death::kProcess, std::chrono::seconds(1));
    return;
  }
  cast_.checks().incarnation_began(host_, *incarnation);
  uplink_ = std::make_unique<ChildEnd>(cast_, host_, *incarnation, static_cast<ChildOwner&>(*this));
  uplink_->start();
  start_parentless_timer();
}

void AggregatorRole::accepted(SessionId session, HostId from) { children_.accepted(session, from); }
void AggregatorRole::connected(SessionId session) {
  if (uplink_ && uplink_->owns(session)) uplink_->connected();
}
void AggregatorRole::received(SessionId session, Frame frame) {
  if (uplink_ && uplink_->owns(session)) {
    uplink_->received(std::move(frame));
  } else {
    children_.received(session, std::move(frame));
  }
  cast_.checks().bounds(host_, children_.budget().bytes_used(), children_.budget().bytes_max(), work_.staged_count());
}
void AggregatorRole::closed(SessionId session, const Error& why) {
  if (uplink_ && uplink_->owns(session)) {
    uplink_->closed(why);
  } else {
    children_.closed(session);
  }
}
void AggregatorRole::writable(SessionId session) {
  if (uplink_ && uplink_->owns(session)) {
    pump();
  } else {
    children_.writable(session);
  }
}

// ---- members
// ----------------------------------------------------------------------------------------------------------

Status AggregatorRole::may_join(const Child& child) {
  if (parentless_) return Error{Code::kUnavailable, "this aggregator has no parent: come for a lease"};
  if (history_ && child.history != *history_) {
    return Error{Code::kUnavailable, "this aggregator is in another history of the federation: come for a lease"};
  }
  return {};  // the root checks the lease when it counts a member
}

// Its children do not notice that they lead nowhere; the coordinator may have another parent for them.
void AggregatorRole::start_parentless_timer() {
  cast_.world().cancel(parentless_timer_);
  parentless_timer_ = cast_.world().after(host_, cast_.scenario().federation.parentless_max, [this] {
    if (uplink_->is_up()) return;
    parentless_ = true;
    std::vector<NodeId> nodes;
    for (const auto& [node, child] : children_.children()) nodes.push_back(node);
    for (const NodeId node : nodes) children_.cut(node, {Code::kUnavailable, "no parent: come for a lease"});
  });
}

void AggregatorRole::child_joined(const Child& child) {
  v1::Member member;
  member.set_node(child.node.value());
  member.set_role(wire::role_to_proto(child.role));
  member.set_lease_epoch(child.lease.value());
  member.set_incarnation(child.incarnation.value());
  member.set_parent(cast_.identity(host_).node.value());
  below_[child.node] = {member, child.node};
  v1::Envelope change;
  *change.mutable_member_change()->add_up() = member;
  uplink_->post(change);
}

void AggregatorRole::child_left(NodeId child) {
  v1::Envelope change;
  for (auto below = below_.begin(); below != below_.end();) {
    if (below->second.via != child) {
      ++below;
      continue;
    }
    change.mutable_member_change()->add_down(below->first.value());
    below = below_.erase(below);
  }
  if (change.has_member_change()) uplink_->post(change);
}

void AggregatorRole::members_changed(NodeId child, const v1::MemberChange& change) {
  for (const std::uint32_t node : change.down()) {
    const auto found = below_.find(NodeId(node));
    if (found != below_.end() && found->second.via == child) below_.erase(found);
  }
  for (const v1::Member& member : change.up()) {
    if (NodeId(member.node()) != cast_.identity(host_).node) below_[NodeId(member.node())] = {member, child};
  }
  v1::Envelope up;
  *up.mutable_member_change() = change;
  uplink_->post(up);
}

NodeId AggregatorRole::via(NodeId node) const {
  const auto found = below_.find(node);
  return found == below_.end() ? NodeId(0) : found->second.via;
}

round::Told::Way AggregatorRole::way() const {
  return [this](const round::Participant& participant) {
    const auto found = below_.find(participant.site);
    const bool here = found != below_.end() && Epoch(found->second.member.lease_epoch()) == participant.lease;
    return here ? found->second.via : NodeId(0);
  };
}

void AggregatorRole::lease_asked(SessionId session, const Identity&, const v1::LeaseRequest&) {
  children_.answer_lease(session, Error{Code::kFailedPrecondition, "leases are the coordinator's to give"});
}

void AggregatorRole::outcome_asked(NodeId child, const v1::OutcomeQuery& query) {
  if (via(NodeId(query.site())) != child) return;
  if (const auto over = over_.find(RunId(query.run())); query.round() == 0 && over != over_.end()) {
    v1::Envelope down;
    *down.mutable_run_state() = over->second;
    return children_.send(child, down);
  }
  v1::Envelope up;
  *up.mutable_outcome_query() = query;
  uplink_->post(up);
}

// ---- updates and partials
// -----------------------------------------------------------------------------------------------

bool AggregatorRole::is_current(RunId run, RoundId round) const {
  return machine_.is_open() && opening_ && run == opening_->run && round == opening_->round;
}

// A site that is turned away for want of the base model is asked again when it is here (model_part).
Result<transfer::Terms> AggregatorRole::terms(bool brings_integers) {
  const bool begun = slot_ && slot_->begun();
  transfer::Terms terms = transfer::make_terms(opening_->plan, opening_->value_count, opening_->integer_count,
                                               opening_->base.digest, opening_->scale_bits, codec_,
                                               begun ? std::make_shared<const round::Schema>(slot_->schema()) : nullptr,
                                               begun ? slot_->integers() : nullptr);
  if (const Status known = transfer::check_base(terms); brings_integers && !known.ok()) {
    awaits_base_ = true;
    return known.error();
  }
  cast_.tamper().terms(&terms);
  return terms;
}

Result<transfer::Terms> AggregatorRole::admit(const transfer::UpdateHead& head) {
  if (!is_current(head.run, head.round)) return Error{Code::kStale, "that round is not open"};
  const Status admitted = machine_.admit(head.site, head.lease, head.weight);
  if (!admitted.ok() && !is_overlooked(cast_.tamper(), admitted.error().code)) return admitted.error();
  watch_.begun(head.site, now());
  return terms(/*brings_integers=*/true);
}

Result<transfer::Terms> AggregatorRole::admit(const transfer::PartialHead& head) {
  if (!is_current(head.run, head.round)) return Error{Code::kStale, "that round is not open"};
  const auto is_below = [&](SiteId site) { return may_bring(head.child, site); };
  const auto admit = [&]() -> Status {
    Status admitted = machine_.admit(head.attempt, head.epoch, head.what.contributors);
    return !admitted.ok() && is_overlooked(cast_.tamper(), admitted.error().code) ? Status{} : admitted;
  };
  const auto refuse = [&](const round::Refusal& conflict) { refused(head.run, head.round, conflict); };
  FLUVIAL_TRY(transfer::admit_partial(head, children_.book(), is_below, admit, refuse));
  watch_.begun(head.child, now());
  return terms(!head.what.contributors.empty());
}

std::vector<SiteId> AggregatorRole::without(const transfer::PartialHead& head) {
  if (!is_current(head.run, head.round)) return {};
  return transfer::without(head, machine_.gather(), [&](SiteId site) { return may_bring(head.child, site); });
}

// A site that went away after its update was taken is below nobody just now.
bool AggregatorRole::may_bring(NodeId child, SiteId site) const {
  const NodeId leads = via(site);
  return leads == child || leads == NodeId(0);
}

void AggregatorRole::arrived(transfer::StagedArrival arrival) {
  if (!is_current(arrival.run, arrival.round)) {
    children_.send(arrival.child, transfer::receipt(arrival, Error{Code::kStale, "the round is closed"}));
    return;
  }
  if (dies("arrived")) return;
  arrival.what.contributors.spend(watch_.verified(arrival.child, arrival.update() != nullptr, now()));
  round::Arrival what = arrival.what;
  what.contributors = shown(cast_.tamper(), machine_.gather(), what.contributors);
  const std::uint64_t id = work_.stage(std::move(arrival));
  carry_out(machine_.arrived(aggregator::ArrivalId(id), what, now()));
}

void AggregatorRole::refused(RunId run, RoundId round, const round::Refusal& refusal) {
  if (is_current(run, round)) carry_out(machine_.refused(refusal, now()));
}

void AggregatorRole::declined(NodeId child, const round::Decline& decline) {
  if (!is_current(decline.run, decline.round) || via(decline.refusal.site) != child) return;
  carry_out(machine_.declined(decline.attempt, decline.refusal, now()));
}

std::shared_ptr<ModelSlot> AggregatorRole::model(const round::ModelRef& ref) {
  return slot_ && slot_->ref() == ref ? slot_ : nullptr;
}

// ---- effects
// ----------------------------------------------------------------------------------------------------------

void AggregatorRole::carry_out(const aggregator::Effects& effects) {
  for (const aggregator::Effect& effect : effects) {
    if (is_dead()) return;
    std::visit([this](const auto& one) { carry_out(one); }, effect);
  }
}

void AggregatorRole::carry_out(const aggregator::ResetSum& effect) {
  ++send_generation_;
  work_.reset({{opening_->value_count, opening_->plan.chunk_values}, opening_->integer_count, effect.scale_bits});
}

void AggregatorRole::carry_out(const aggregator::OpenRound&) {
  wire::Opening whole = *opening_;
  using std::chrono::duration_cast;
  const Duration passed = now() - opened_at_;
  whole.soft_left = duration_cast<std::chrono::milliseconds>(up_.tier_deadline(opening_->soft_left) - passed);
  whole.hard_left = duration_cast<std::chrono::milliseconds>(up_.tier_deadline(opening_->hard_left) - passed);
  const std::set<NodeId> nodes = transfer::nodes_of(children_.children());
  for (auto& [child, opening] : transfer::cut_openings(whole, machine_.gather(), told_, nodes, way())) {
    if (dies("open")) return;
    opening.received = children_.book().received(child);
    children_.send(child, wire::to_envelope(opening));
  }
}

void AggregatorRole::carry_out(const aggregator::SetTimer& effect) {
  cast_.world().cancel(timer_);
  timer_ = cast_.world().at(host_, effect.at, [this] { carry_out(machine_.tick(now())); });
}

void AggregatorRole::carry_out(const aggregator::Take& effect) {
  work_.take(effect.arrival.value(),
             [this, id = effect.arrival, begun = now()](const transfer::StagedArrival& arrival,
                                                        const Result<round::ContributorSet>& added) {
               if (!added.ok()) return carry_out(machine_.take_failed(id, added.error(), now()));
               children_.send(arrival.child, transfer::receipt(arrival, Status{}));
               round::ContributorSet timed = shown_of(cast_.tamper(), machine_.gather(), *added);
               timed.spend({.merge = now() - begun});
               carry_out(machine_.taken(id, timed, now()));
             });
}

void AggregatorRole::carry_out(const aggregator::Release& effect) { work_.release(effect.arrival.value()); }

void AggregatorRole::carry_out(const aggregator::Drop& effect) {
  const NodeWork::Staged arrival = work_.drop(effect.arrival.value());
  if (!arrival) return;
  const std::vector<SiteId> both = machine_.gather().without(arrival->what.contributors);
  children_.send(arrival->child, transfer::receipt(*arrival, effect.error, both));
}

// ---- the partial on its way up
// ------------------------------------------------------------------------------------------

void AggregatorRole::carry_out(const aggregator::SendPartial& effect) {
  const std::uint64_t generation = ++send_generation_;
  // On the lane: what was asked of the sum before is in it.
  const Duration cost = effect.contributors.empty() ? std::chrono::microseconds(1) : cast_.time_to_pack();
  work_.lane().push(cost, [this, partial = effect, generation] {
    if (generation != send_generation_ || !uplink_->is_up() || dies("partial")) return;
    begin_sending(partial);
  });
}

void AggregatorRole::begin_sending(const aggregator::SendPartial& partial) {
  if (!partial.contributors.empty()) {
    cast_.checks().rounds().sum_sealed(cast_.identity(host_).node, opening_->run, opening_->round, partial.contributors,
                                       work_.flat(opening_->scale_bits));
  }
  if (!partial.contributors.empty()) up_.begun(partial.sequence, now());
  sending_ = std::make_unique<Sending>();
  sending_->partial = partial;
  sending_->generation = send_generation_;
  const kernels::ChunkLayout layout{opening_->value_count, opening_->plan.chunk_values};
  sending_->chunk_count = partial.contributors.empty() ? 0 : layout.chunk_count();
  const std::uint64_t first = transfer::first_chunk(std::exchange(opening_->received, std::nullopt),
                                                    uplink_->incarnation(), partial.sequence, sending_->chunk_count);
  for (std::uint64_t i = 0; i < first; ++i) {  // the parent has them; the digest covers them
    sending_->hash.update(work_.node().pack_chunk(i).span());
  }
  sending_->next_chunk = first;
  v1::Envelope begin =
      transfer::partial_begin(*opening_, uplink_->incarnation(), partial.sequence,
                              {partial.contributors, partial.refusals, partial.missing}, sending_->chunk_count, first);
  forgery_.draw();
  forgery_.apply(begin.mutable_partial_begin());
  uplink_->post(begin);
  pump();
}

void AggregatorRole::pump() {
  while (sending_ && uplink_->has_room()) {
    if (sending_->generation != send_generation_) {  // overtaken
      sending_.reset();
      return;
    }
    if (sending_->next_chunk == sending_->chunk_count) return finish_sending();
    v1::Envelope chunk;
    chunk.mutable_partial_chunk()->set_index(sending_->next_chunk);
    const std::uint64_t index = sending_->next_chunk++;
    const kernels::ChunkLayout layout{opening_->value_count, opening_->plan.chunk_values};
    Buffer packed = work_.node().pack_chunk(index);
    sending_->hash.update(packed.span());
    if (!forgery_.sends(index)) continue;
    uplink_->post(chunk, Payload::of(forgery_.apply(std::move(packed), layout.size(index))));
    if (dies("partial chunk")) return;
  }
}

void AggregatorRole::finish_sending() {
  const std::unique_ptr<Sending> sending = std::move(sending_);
  Payload integers;
  if (sending->chunk_count > 0) {
    Buffer bytes = Buffer::copy_of(std::as_bytes(work_.node().integers()));
    sending->hash.update(bytes.span());
    if (!bytes.empty()) integers = Payload::of(std::move(bytes));
  }
  v1::Envelope end;
  Digest digest = sending->hash.finish();
  forgery_.apply(&digest);
  end.mutable_partial_end()->set_sha256(wire::digest_to_proto(digest));
  uplink_->post(end, std::move(integers));
}

}  // namespace fluvial::simulator

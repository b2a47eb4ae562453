#include "aggregator/service/region_service.h"

#include <algorithm>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/json.hpp>
#include <utility>

#include "core/digest/sha256.h"
#include "core/transfer/cut.h"
#include "core/transfer/outgoing.h"
#include "core/wire/mapping.h"

namespace fluvial::aggregator {

RegionService::RegionService(tree::Runtime& runtime, net::TaskGroup& tasks, NodeId self, tree::HubOptions options,
                             Duration parentless_max)
    : runtime_(runtime),
      tasks_(tasks),
      self_(self),
      hub_(runtime, *this, std::move(options), std::make_shared<identity::DenyList>()),
      counts_(runtime.metrics),
      sum_(runtime),
      timer_(runtime.strand),
      parentless_max_(parentless_max),
      parentless_timer_(runtime.strand),
      partial_seconds_(telemetry::seconds_histogram(runtime.metrics, "partial_seconds",
                                                    "From a partial's first frame to the parent's receipt")) {}

void RegionService::attach(tree::Uplink& uplink, std::function<void(bool)> up_changed) {
  uplink_ = &uplink;
  up_changed_ = std::move(up_changed);
  start_parentless_timer();
}

void RegionService::stop() {
  ++send_generation_;
  timer_.cancel();
  parentless_timer_.cancel();
  if (slot_) slot_->abandon();
  sum_.lane().stop();
  uplink_->stop();
  hub_.stop();
}

std::string RegionService::status_json(const std::string& name) const {
  boost::json::object object{{"role", "aggregator"},
                             {"name", name},
                             {"node", self_.value()},
                             {"connected", uplink_->is_up()},
                             {"parent", uplink_->lease().parent_name},
                             {"children", hub_.children().size()},
                             {"run", opening_ ? opening_->run.value() : 0},
                             {"round", opening_ ? opening_->round.value() : 0},
                             {"open", nullptr}};
  if (machine_.is_open()) {
    object["open"] = boost::json::object{{"attempt", machine_.opening().attempt.value()},
                                         {"participants", machine_.gather().participant_count()},
                                         {"in", machine_.gather().counted().size()},
                                         {"awaited", machine_.gather().awaited().size()},
                                         {"model_complete", slot_ && slot_->complete()}};
  }
  object["staging_bytes"] = hub_.budget().bytes_used();
  return boost::json::serialize(object);
}

// ---- members ------------------------------------------------------------------------------------------------------

Status RegionService::may_join(const tree::Child& child) {
  if (child.node == self_) return Error{Code::kPermissionDenied, "a node cannot be its own child"};
  if (parentless_) return Error{Code::kUnavailable, "this aggregator has no parent: come for a lease"};
  if (history_ && child.history != *history_) {
    return Error{Code::kUnavailable, "this aggregator is in another history of the federation: come for a lease"};
  }
  return {};  // the root checks the lease when it counts a member
}

void RegionService::child_joined(const tree::Child& child) {
  runtime_.log.info("child joined",
                    {{"name", child.name}, {"role", role_name(child.role)}, {"lease_epoch", child.lease}});
  v1::Member member;
  member.set_node(child.node.value());
  member.set_name(child.name);
  member.set_role(wire::role_to_proto(child.role));
  member.set_lease_epoch(child.lease.value());
  member.set_incarnation(child.incarnation.value());
  member.set_parent(self_.value());
  below_[child.node] = {member, child.node};
  v1::Envelope change;
  *change.mutable_member_change()->add_up() = member;
  uplink_->post(std::move(change));
}

void RegionService::child_left(NodeId child) {
  v1::Envelope change;
  for (auto below = below_.begin(); below != below_.end();) {
    if (below->second.via != child) {
      ++below;
      continue;
    }
    change.mutable_member_change()->add_down(below->first.value());
    below = below_.erase(below);
  }
  if (!change.has_member_change()) return;  // it is below another child by now
  uplink_->post(std::move(change));
}

void RegionService::members_changed(NodeId child, const v1::MemberChange& change) {
  for (const std::uint32_t node : change.down()) {
    const auto found = below_.find(NodeId(node));
    if (found != below_.end() && found->second.via == child) below_.erase(found);
  }
  for (const v1::Member& member : change.up()) {
    if (NodeId(member.node()) != self_) below_[NodeId(member.node())] = {member, child};
  }
  v1::Envelope up;
  *up.mutable_member_change() = change;
  uplink_->post(std::move(up));
}

NodeId RegionService::via(NodeId node) const {
  const auto found = below_.find(node);
  return found == below_.end() ? NodeId(0) : found->second.via;
}

net::Awaitable<Result<v1::LeaseGrant>> RegionService::lease(identity::PeerIdentity, v1::LeaseRequest) {
  co_return Error{Code::kFailedPrecondition, "leases are the coordinator's to give"};
}

void RegionService::relay_down(NodeId node, v1::Envelope message) {
  const NodeId child = via(node);
  if (child != NodeId(0)) hub_.send(child, std::move(message));
}

void RegionService::outcome_asked(NodeId child, const v1::OutcomeQuery& query) {
  if (via(NodeId(query.site())) != child) return;
  if (const auto over = over_.find(RunId(query.run())); query.round() == 0 && over != over_.end()) {
    v1::Envelope down;
    *down.mutable_run_state() = over->second;
    return hub_.send(child, std::move(down));
  }
  v1::Envelope up;
  *up.mutable_outcome_query() = query;
  uplink_->post(std::move(up));
}

// ---- updates and partials from below --------------------------------------------------------------------------------

bool RegionService::is_current(RunId run, RoundId round) const {
  return machine_.is_open() && opening_ && run == opening_->run && round == opening_->round;
}

// A site that is turned away for want of the base model is asked again when it is here (model_part).
Result<transfer::Terms> RegionService::terms(bool brings_integers) {
  transfer::Terms terms = transfer::make_terms(opening_->plan, opening_->value_count, opening_->integer_count,
                                               opening_->base.digest, opening_->scale_bits, codec_,
                                               slot_ ? slot_->schema() : nullptr, slot_ ? slot_->integers() : nullptr);
  if (const Status known = transfer::check_base(terms); brings_integers && !known.ok()) {
    awaits_base_ = true;
    return known.error();
  }
  return terms;
}

Result<transfer::Terms> RegionService::admit(const transfer::UpdateHead& head) {
  if (!is_current(head.run, head.round))
    return Error{Code::kStale, "round " + std::to_string(head.round.value()) + " is not open"};
  FLUVIAL_TRY(machine_.admit(head.site, head.lease, head.weight));
  watch_.begun(head.site, now());
  return terms(/*brings_integers=*/true);
}

Result<transfer::Terms> RegionService::admit(const transfer::PartialHead& head) {
  if (!is_current(head.run, head.round))
    return Error{Code::kStale, "round " + std::to_string(head.round.value()) + " is not open"};
  const auto is_below = [&](SiteId site) { return may_bring(head.child, site); };
  const auto admit = [&] { return machine_.admit(head.attempt, head.epoch, head.what.contributors); };
  const auto refuse = [&](const round::Refusal& conflict) { refused(head.run, head.round, conflict); };
  FLUVIAL_TRY(transfer::admit_partial(head, hub_.book(), is_below, admit, refuse));
  watch_.begun(head.child, now());
  return terms(!head.what.contributors.empty());
}

std::vector<SiteId> RegionService::without(const transfer::PartialHead& head) {
  if (!is_current(head.run, head.round)) return {};
  return transfer::without(head, machine_.gather(), [&](SiteId site) { return may_bring(head.child, site); });
}

// A site that went away after its update was taken is below nobody just now.
bool RegionService::may_bring(NodeId child, SiteId site) const {
  const NodeId now_via = via(site);
  return now_via == child || now_via == NodeId(0);
}

void RegionService::arrived(transfer::StagedArrival arrival) {
  if (!is_current(arrival.run, arrival.round)) {
    hub_.send(arrival.child, transfer::receipt(arrival, Error{Code::kStale, "the round is closed"}));
    return;
  }
  counts_.updates_verified.add();
  if (arrival.chunks) counts_.update_bytes.add(static_cast<double>(arrival.chunks->total_bytes()));
  arrival.what.contributors.spend(watch_.verified(arrival.child, arrival.update() != nullptr, now()));
  const round::Arrival what = arrival.what;
  const std::uint64_t id = sum_.stage(std::move(arrival));
  counts_.staging_bytes.set(static_cast<double>(hub_.budget().bytes_used()));
  carry_out(machine_.arrived(ArrivalId(id), what, now()));
}

void RegionService::refused(RunId run, RoundId round, const round::Refusal& refusal) {
  if (!is_current(run, round)) return;
  note_refusal(refusal);
  carry_out(machine_.refused(refusal, now()));
}

void RegionService::note_refusal(const round::Refusal& refusal) {
  counts_.contribution_refused(code_name(refusal.error.code));
  runtime_.log.warn("site refused", {{"run", opening_->run},
                                     {"round", opening_->round},
                                     {"site", refusal.site},
                                     {"reason", refusal.error.to_string()}});
}

void RegionService::declined(NodeId child, const round::Decline& decline) {
  if (!is_current(decline.run, decline.round) || via(decline.refusal.site) != child) return;
  note_refusal(decline.refusal);
  carry_out(machine_.declined(decline.attempt, decline.refusal, now()));
}

// ---- effects ------------------------------------------------------------------------------------------------------

void RegionService::carry_out(Effects effects) {
  for (const Effect& effect : effects) {
    std::visit([this](const auto& one) { carry_out(one); }, effect);
  }
}

void RegionService::carry_out(const ResetSum& effect) {
  ++send_generation_;
  sum_.reset({{opening_->value_count, opening_->plan.chunk_values}, opening_->integer_count, effect.scale_bits});
}

void RegionService::carry_out(const OpenRound&) {
  counts_.attempts.add();
  counts_.round.set(static_cast<double>(opening_->round.value()));
  counts_.participants.set(static_cast<double>(machine_.gather().participant_count()));
  send_openings();
}

void RegionService::send_openings() {
  wire::Opening whole = *opening_;
  using std::chrono::duration_cast;
  const Duration passed = now() - opened_at_;
  whole.soft_left = duration_cast<std::chrono::milliseconds>(up_.tier_deadline(opening_->soft_left) - passed);
  whole.hard_left = duration_cast<std::chrono::milliseconds>(up_.tier_deadline(opening_->hard_left) - passed);
  const auto way = [this](const round::Participant& participant) { return way_to(participant); };
  const std::set<NodeId> children = transfer::nodes_of(hub_.children());
  for (auto& [child, opening] : transfer::cut_openings(whole, machine_.gather(), told_, children, way)) {
    opening.received = hub_.book().received(child);
    hub_.send(child, wire::to_envelope(opening));
  }
}

// By the lease that counts: a site that has moved may still be announced by its old parent.
NodeId RegionService::way_to(const round::Participant& participant) const {
  const auto found = below_.find(participant.site);
  const bool current = found != below_.end() && Epoch(found->second.member.lease_epoch()) == participant.lease;
  return current ? found->second.via : NodeId(0);
}

void RegionService::carry_out(const SetTimer& effect) {
  timer_.expires_after(std::max(Duration(0), effect.at - now()));
  timer_.async_wait(boost::asio::bind_executor(runtime_.strand, [this](const boost::system::error_code& error) {
    if (!error) carry_out(machine_.tick(now()));
  }));
}

void RegionService::carry_out(const Take& effect) {
  const TimePoint begun = now();
  sum_.take(effect.arrival.value(), [this, id = effect.arrival, begun](const transfer::StagedArrival& arrival,
                                                                       const Result<round::ContributorSet>& added) {
    if (!added.ok()) {
      runtime_.log.error("the sum is made again without an update", {{"run", arrival.run},
                                                                     {"round", arrival.round},
                                                                     {"child", arrival.child},
                                                                     {"reason", added.error().to_string()}});
      return carry_out(machine_.take_failed(id, added.error(), now()));
    }
    hub_.send(arrival.child, transfer::receipt(arrival, Status{}));
    round::ContributorSet timed = *added;
    timed.spend({.merge = now() - begun});
    carry_out(machine_.taken(id, timed, now()));
    counts_.staging_bytes.set(static_cast<double>(hub_.budget().bytes_used()));
  });
}

void RegionService::carry_out(const Release& effect) {
  sum_.release(effect.arrival.value());
  counts_.staging_bytes.set(static_cast<double>(hub_.budget().bytes_used()));
}

void RegionService::carry_out(const Drop& effect) {
  const tree::Sum::Staged arrival = sum_.drop(effect.arrival.value());
  if (!arrival) return;
  const bool partial = arrival->update() == nullptr;
  const std::vector<SiteId> without =
      partial ? machine_.gather().without(arrival->what.contributors) : std::vector<SiteId>{};
  hub_.send(arrival->child, transfer::receipt(*arrival, effect.error, without));
}

// ---- the partial on its way up ------------------------------------------------------------------------------------

void RegionService::carry_out(const SendPartial& effect) {
  const std::uint64_t generation = ++send_generation_;
  sum_.lane().push([this, effect, generation] { return send_partial(effect, generation); });
}

net::Awaitable<void> RegionService::send_partial(SendPartial partial, std::uint64_t generation) {
  const std::shared_ptr<net::Session> session = uplink_->session();
  if (session == nullptr || generation != send_generation_) co_return;  // the next Opening asks again
  const telemetry::Logger log = runtime_.log.with({{"run", opening_->run}, {"round", opening_->round}});
  const std::size_t contributors = partial.contributors.size();
  const std::size_t missing = partial.missing.size();
  if (contributors > 0) up_.begun(partial.sequence, now());
  const Status sent = co_await stream_partial(std::move(partial), generation, session);
  log.info(
      sent.ok() ? "partial sent" : "partial not sent",
      {{"contributors", contributors}, {"missing", missing}, {"reason", sent.ok() ? "" : sent.error().to_string()}});
}

void RegionService::observe_partial(std::optional<Duration> took) {
  if (took) partial_seconds_.observe(std::chrono::duration<double>(*took).count());
}

namespace {
net::Awaitable<void> send_on(std::shared_ptr<net::Session> session, net::OutFrame frame, Status* out) {
  *out = co_await session->send(std::move(frame));
}
net::Awaitable<Status> send(std::shared_ptr<net::Session> session, v1::Envelope message, SharedBytes payload) {
  Status sent;
  net::OutFrame frame{std::move(message), std::move(payload)};
  co_await net::asio::co_spawn(session->executor(), send_on(session, std::move(frame), &sent),
                               net::asio::use_awaitable);
  co_return sent;
}
}  // namespace

net::Awaitable<Status> RegionService::stream_partial(SendPartial partial, std::uint64_t generation,
                                                     std::shared_ptr<net::Session> session) {
  const std::size_t chunk_count = partial.contributors.empty() ? 0 : sum_.shape().layout.chunk_count();
  const std::uint64_t first_chunk = transfer::first_chunk(std::exchange(opening_->received, std::nullopt),
                                                          uplink_->incarnation(), partial.sequence, chunk_count);
  const round::Arrival what{std::move(partial.contributors), std::move(partial.refusals), std::move(partial.missing)};
  v1::Envelope begin =
      transfer::partial_begin(*opening_, uplink_->incarnation(), partial.sequence, what, chunk_count, first_chunk);
  Status sent = co_await send(session, std::move(begin), {});
  Sha256 hash;
  for (std::size_t i = 0; sent.ok() && i < chunk_count; ++i) {
    if (generation != send_generation_) co_return Error{Code::kStale, "overtaken"};
    Result<SharedBytes> packed = co_await runtime_.pool.run([this, i, &hash]() -> Result<SharedBytes> {
      SharedBytes bytes = SharedBytes::from(sum_.node().pack_chunk(i));
      hash.update(bytes.bytes);
      return bytes;
    });
    if (!packed.ok()) co_return packed.error();
    if (i < first_chunk) continue;  // the parent has it; the digest covers it
    v1::Envelope chunk;
    chunk.mutable_partial_chunk()->set_index(i);
    sent = co_await send(session, std::move(chunk), std::move(*packed));
  }
  if (!sent.ok()) co_return sent;
  if (generation != send_generation_) co_return Error{Code::kStale, "overtaken"};
  SharedBytes integers;
  if (chunk_count > 0) integers = SharedBytes::from(Buffer::copy_of(std::as_bytes(sum_.node().integers())));
  hash.update(integers.bytes);
  v1::Envelope end;
  end.mutable_partial_end()->set_sha256(wire::digest_to_proto(hash.finish()));
  co_return co_await send(session, std::move(end), std::move(integers));
}

}  // namespace fluvial::aggregator

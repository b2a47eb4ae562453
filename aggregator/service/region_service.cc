#include "aggregator/service/region_service.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/json.hpp>
#include <utility>

#include "core/digest/sha256.h"
#include "core/transfer/cut.h"
#include "core/transfer/outgoing.h"
#include "core/wire/mapping.h"

namespace fluvial::aggregator {

RegionService::RegionService(tree::Runtime& runtime, net::TaskGroup& tasks, NodeId self, RegionObserver& observer,
                             tree::HubOptions options, Duration parentless_max)
    : runtime_(runtime),
      tasks_(tasks),
      self_(self),
      observer_(observer),
      hub_(runtime, *this, std::move(options), std::make_shared<identity::DenyList>()),
      side_(runtime, *this, hub_),
      timer_(runtime.strand),
      parentless_max_(parentless_max),
      parentless_timer_(runtime.strand),
      members_(self) {}

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
  side_.lane().stop();
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
  observer_.child_joined(child);
  tell_parent(members_.joined(child));
}

void RegionService::child_left(NodeId child) {
  v1::MemberChange gone = members_.left(child);
  if (gone.down_size() > 0) tell_parent(std::move(gone));
}

void RegionService::members_changed(NodeId child, const v1::MemberChange& change) {
  members_.changed(child, change);
  tell_parent(change);
}

void RegionService::tell_parent(v1::MemberChange change) {
  v1::Envelope up;
  *up.mutable_member_change() = std::move(change);
  uplink_->post(std::move(up));
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

Status RegionService::may_take(const transfer::UpdateHead& head) const {
  return machine_.admit(head.site, head.lease, head.weight);
}

Status RegionService::may_take(const transfer::PartialHead& head) const {
  return machine_.admit(head.attempt, head.epoch, head.what.contributors);
}

// A site that went away after its update was taken is below nobody just now.
bool RegionService::may_bring(NodeId child, SiteId site) const {
  const NodeId now_via = via(site);
  return now_via == child || now_via == NodeId(0);
}

void RegionService::staged(ArrivalId arrival, const round::Arrival& what) {
  carry_out(machine_.arrived(arrival, what, now()));
}

void RegionService::taken(ArrivalId arrival, const round::ContributorSet& with_probes) {
  carry_out(machine_.taken(arrival, with_probes, now()));
}

void RegionService::take_failed(ArrivalId arrival, NodeId child, const Error& error) {
  observer_.sum_made_again(machine_.opening(), child, error);
  carry_out(machine_.take_failed(arrival, error, now()));
}

void RegionService::will_not_be_in(const round::Refusal& refusal) {
  observer_.site_refused(machine_.opening(), refusal);
  carry_out(machine_.refused(refusal, now()));
}

void RegionService::has_declined(AttemptId attempt, const round::Refusal& refusal) {
  observer_.site_refused(machine_.opening(), refusal);
  carry_out(machine_.declined(attempt, refusal, now()));
}

// ---- effects ------------------------------------------------------------------------------------------------------

void RegionService::carry_out(Effects effects) {
  for (const Effect& effect : effects) {
    std::visit([this](const auto& one) { carry_out(one); }, effect);
  }
}

void RegionService::carry_out(const ResetSum& effect) {
  ++send_generation_;
  side_.reset_sum({{opening_->value_count, opening_->plan.chunk_values}, opening_->integer_count, effect.scale_bits});
}

void RegionService::carry_out(const OpenRound&) {
  observer_.round_opened(machine_.opening(), machine_.gather().participant_count());
  send_openings();
}

void RegionService::send_openings() {
  const Duration passed = now() - opened_at_;
  side_.send_openings(*opening_, up_.tier_deadline(opening_->soft_left) - passed,
                      up_.tier_deadline(opening_->hard_left) - passed);
}

void RegionService::carry_out(const SetTimer& effect) {
  timer_.after(effect.at - now(), [this] { carry_out(machine_.tick(now())); });
}

// ---- the partial on its way up ------------------------------------------------------------------------------------

void RegionService::carry_out(const SendPartial& effect) {
  const std::uint64_t generation = ++send_generation_;
  side_.lane().push([this, effect, generation] { return send_partial(effect, generation); });
}

net::Awaitable<void> RegionService::send_partial(SendPartial partial, std::uint64_t generation) {
  const std::shared_ptr<net::Session> session = uplink_->session();
  if (session == nullptr || generation != send_generation_) co_return;  // the next Opening asks again
  const RunId run = opening_->run;
  const RoundId round = opening_->round;
  if (!partial.contributors.empty()) up_.begun(partial.sequence, now());
  observer_.partial_sent(run, round, partial, co_await stream_partial(partial, generation, session));
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
  const std::size_t chunk_count = partial.contributors.empty() ? 0 : side_.sum().shape().layout.chunk_count();
  const std::uint64_t first_chunk = transfer::first_chunk(std::exchange(opening_->received, std::nullopt),
                                                          uplink_->incarnation(), partial.sequence, chunk_count);
  const round::Arrival what{std::move(partial.contributors), std::move(partial.refusals), std::move(partial.missing)};
  v1::Envelope begin =
      transfer::partial_begin(*opening_, uplink_->incarnation(), partial.sequence, what, chunk_count, first_chunk);
  Status sent = co_await send(session, std::move(begin), {});
  Sha256 hash;
  for (std::size_t i = 0; sent.ok() && i < chunk_count; ++i) {
    if (generation != send_generation_) co_return Error{Code::kStale, "overtaken"};
    Result<SharedBytes> packed = co_await runtime_.pool.run(
        [this, i, &hash]() -> Result<SharedBytes> {
          SharedBytes bytes = SharedBytes::from(side_.sum().node().pack_chunk(i));
          hash.update(bytes.bytes);
          return bytes;
        },
        net::Work::kPack);
    if (!packed.ok()) co_return packed.error();
    if (i < first_chunk) continue;  // the parent has it; the digest covers it
    v1::Envelope chunk;
    chunk.mutable_partial_chunk()->set_index(i);
    sent = co_await send(session, std::move(chunk), std::move(*packed));
  }
  if (!sent.ok()) co_return sent;
  if (generation != send_generation_) co_return Error{Code::kStale, "overtaken"};
  SharedBytes integers;
  if (chunk_count > 0) integers = SharedBytes::from(Buffer::copy_of(std::as_bytes(side_.sum().node().integers())));
  hash.update(integers.bytes);
  v1::Envelope end;
  end.mutable_partial_end()->set_sha256(wire::digest_to_proto(hash.finish()));
  co_return co_await send(session, std::move(end), std::move(integers));
}

}  // namespace fluvial::aggregator

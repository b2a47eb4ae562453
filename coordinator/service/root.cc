#include "coordinator/service/root.h"

#include <boost/asio/awaitable.hpp>
#include <set>
#include <utility>
#include <vector>

#include "core/store/audit_log.h"
#include "core/transfer/outcome.h"

namespace fluvial::coordinator {

Root::Root(tree::Runtime& runtime, net::TaskGroup& tasks, Keeps keeps, RunObserver& observer, tree::HubOptions options,
           const FailoverSettings& failover)
    : runtime_(runtime),
      journal_(keeps.journal),
      registry_(runtime, keeps.journal, deny_, failover, keeps.key),
      signer_(std::move(keeps.key), keeps.epoch),
      authorship_(keeps.journal),
      counts_(runtime.metrics),
      hub_(runtime, *this, std::move(options), deny_),
      runs_(runtime, tasks, {keeps.journal, keeps.models, signer_, authorship_, keeps.epoch}, registry_, observer,
            hub_) {
  registry_.on_refused([this] { refused_changed(); });
  signer_.with_audit_head([this] {
    const Result<store::AuditHead> head = store::AuditLog(journal_).head();
    return head.ok() ? std::string(as_text(head->bytes())) : std::string();
  });
  runs_.roll_call().on_activity([this](NodeId node) { return reports_.activity_of(node, runtime_.clock); });
}

Status Root::load() {
  FLUVIAL_TRY(registry_.load());
  signer_.in_history(round::current_of(registry_.lineage()));
  return authorship_.load();
}

// What a site signs it knows itself, so what an aggregator brings in another form the aggregator made.
std::vector<round::Refusal> Root::forged(const tree::Child& child, const transfer::Brought& brought) {
  std::vector<round::Refusal> forged = authorship_.forged(child, brought);
  if (forged.empty() || child.role != Role::kAggregator) return forged;
  counts_.contributions_forged.add(static_cast<double>(forged.size()));
  runtime_.log.error("an aggregator brings contributions that are not their sites' own; they do not count",
                     {{"member", child.name},
                      {"run", brought.run},
                      {"round", brought.round},
                      {"count", forged.size()},
                      {"reason", forged.front().error.message}});
  return forged;
}

void Root::replaced(NodeId node) {
  authorship_.begins_anew(node);
  runs_.members().replaced(node);
}

void Root::child_joined(const tree::Child& child) {
  runtime_.log.info("child joined",
                    {{"member", child.name}, {"member_role", role_name(child.role)}, {"lease_epoch", child.lease}});
  registry_.child_joined(child);
  tell_leases(child.node);
  hub_.tell_denials(child, denials());
  runs_.child_joined(child.node);
  runs_.members().changed(child.role == Role::kSite ? std::vector{SiteId(child.node)} : std::vector<SiteId>{});
}

void Root::refused_changed() {
  hub_.drop_denied();
  std::optional<v1::Denials> denials = registry_.denials();
  if (!denials) return;
  denials_ = std::move(denials);
  hub_.tell_denials(&*denials_);
}

void Root::child_left(NodeId child) {
  runtime_.log.info("child left", {{"member", registry_.book().name_of(child)}});
  registry_.child_left(child);
  runs_.members().changed({});
}

void Root::members_changed(NodeId child, const v1::MemberChange& change) {
  const std::vector<SiteId> up = registry_.members_changed(child, change);
  std::set<NodeId> parents;
  for (const v1::Member& member : change.up()) {
    if (registry_.book().via(NodeId(member.node())) == child) parents.emplace(member.node());
  }
  for (const NodeId parent : parents) tell_leases(parent);
  runs_.members().changed(up);
}

// An aggregator is told the leases of those children that cannot show them: when they are granted, and when it comes.
void Root::tell_leases(NodeId parent) {
  const NodeId child = registry_.book().via(parent);
  if (child == NodeId(0)) return;
  for (v1::MemberChange& change : registry_.leases_to_tell(parent)) {
    v1::Envelope message;
    *message.mutable_member_change() = std::move(change);
    hub_.send(child, std::move(message));
  }
}

// One that has moved meanwhile is somebody else's to report.
void Root::reported(NodeId child, round::NodeReport report) {
  if (registry_.book().via(report.node) != child) return;
  runs_.steps().told(report);
  runs_.reported(report);
  report.rounds.clear();
  reports_.heard(std::move(report));
}

// The lease, and in the audit log what is new about its holder.
net::Awaitable<Result<LeaseAnswer>> Root::registered(identity::PeerIdentity peer, v1::LeaseRequest request,
                                                     std::string remote) {
  const std::uint64_t process = request.process();
  const bool were_two = registry_.holders().are_two(peer.node, runtime_.clock.now());
  Result<LeaseAnswer> answer = co_await registry_.lease(peer, std::move(request));
  if (admissions_ == nullptr) co_return answer;
  if (!were_two && registry_.holders().are_two(peer.node, runtime_.clock.now())) {
    co_await admissions_->held_twice(peer, remote);
  }
  if (!answer.ok()) co_return answer;
  FLUVIAL_CO_TRY(co_await admissions_->admitted(std::move(peer), process, std::move(remote)));
  co_return answer;
}

net::Awaitable<Result<v1::LeaseGrant>> Root::lease(identity::PeerIdentity peer, v1::LeaseRequest request,
                                                   std::string remote) {
  const NodeId node = peer.node;
  const std::string name = peer.name;
  const bool shows_lease = request.shows_lease();
  const Result<LeaseAnswer> answer = co_await registered(peer, std::move(request), std::move(remote));
  if (!answer.ok()) {
    runtime_.log.warn("no lease granted; the member asks again",
                      {{"member", name}, {"reason", answer.error().to_string()}});
    co_return answer.error();
  }
  if (answer->moved) {
    runtime_.log.info("lease moved",
                      {{"member", name}, {"parent", answer->parent_name}, {"lease_epoch", answer->epoch}});
    runs_.members().node_moved(node, answer->epoch);
  }
  if (const auto detour = registry_.book().detour_of(node, runtime_.clock.now())) {
    runtime_.log.warn("a member goes past its aggregator; it returns when that one serves again",
                      {{"member", name},
                       {"aggregator", registry_.book().name_of(detour->past)},
                       {"parent", answer->parent_name},
                       {"reason", detour->reason}});
  }
  Result<v1::LeaseGrant> grant = registry_.grant(peer, *answer, shows_lease);
  if (grant.ok() && !shows_lease && answer->parent != NodeId(0)) tell_leases(answer->parent);
  if (grant.ok() && peer.role == Role::kAggregator && denials_) *grant->mutable_denials() = *denials_;
  co_return grant;
}

net::Awaitable<v1::RenewReply> Root::renew(identity::PeerIdentity peer, v1::RenewRequest request, std::string remote) {
  if (renewals_ == nullptr) {
    co_return co_await HubOwner::renew(std::move(peer), std::move(request), std::move(remote));
  }
  co_return co_await renewals_->renew(std::move(peer), std::move(request), std::move(remote));
}

net::Awaitable<void> Root::outcome_asked(NodeId child, v1::OutcomeQuery query) {
  Result<std::vector<v1::Envelope>> replies = co_await runtime_.pool.run([&]() -> Result<std::vector<v1::Envelope>> {
    FLUVIAL_ASSIGN(std::vector<v1::Envelope> answers, transfer::answers(journal_, query));
    signer_.sign(&answers);
    return answers;
  });
  if (!replies.ok()) {
    if (replies.error().code == Code::kInvalidArgument) co_return;  // no digest
    runtime_.log.error("an outcome could not be read; the site asks again", {{"reason", replies.error().to_string()}});
    co_return;
  }
  for (v1::Envelope& reply : *replies) hub_.send(child, std::move(reply));
}

}  // namespace fluvial::coordinator

#include "coordinator/service/root.h"

#include <boost/asio/awaitable.hpp>
#include <utility>
#include <vector>

#include "core/transfer/outcome.h"

namespace fluvial::coordinator {

Root::Root(tree::Runtime& runtime, net::TaskGroup& tasks, Keeps keeps, RunObserver& observer, tree::HubOptions options,
           const FailoverSettings& failover)
    : runtime_(runtime),
      journal_(keeps.journal),
      registry_(runtime, keeps.journal, deny_, failover),
      hub_(runtime, *this, std::move(options), deny_),
      runs_(runtime, tasks, keeps.journal, keeps.models, registry_, observer, hub_, keeps.epoch) {
  runs_.roll_call().on_activity([this](NodeId node) { return reports_.activity_of(node, runtime_.clock); });
}

void Root::child_joined(const tree::Child& child) {
  runtime_.log.info("child joined",
                    {{"member", child.name}, {"member_role", role_name(child.role)}, {"lease_epoch", child.lease}});
  registry_.child_joined(child);
  runs_.members().changed(child.role == Role::kSite ? std::vector{SiteId(child.node)} : std::vector<SiteId>{});
}

void Root::child_left(NodeId child) {
  runtime_.log.info("child left", {{"member", registry_.book().name_of(child)}});
  registry_.child_left(child);
  runs_.members().changed({});
}

void Root::members_changed(NodeId child, const v1::MemberChange& change) {
  const std::vector<SiteId> up = registry_.members_changed(child, change);
  runs_.members().changed(up);
}

// One that has moved meanwhile is somebody else's to report.
void Root::reported(NodeId child, round::NodeReport report) {
  if (registry_.book().via(report.node) != child) return;
  runs_.steps().told(report);
  report.rounds.clear();
  reports_.heard(std::move(report));
}

net::Awaitable<Result<v1::LeaseGrant>> Root::lease(identity::PeerIdentity peer, v1::LeaseRequest request) {
  const NodeId node = peer.node;
  const std::string name = peer.name;
  const Result<LeaseAnswer> answer = co_await registry_.lease(std::move(peer), std::move(request));
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
  co_return registry_.to_proto(*answer);
}

net::Awaitable<void> Root::outcome_asked(NodeId child, v1::OutcomeQuery query) {
  Result<std::vector<v1::Envelope>> replies =
      co_await runtime_.pool.run([&] { return transfer::answers(journal_, query); });
  if (!replies.ok()) {
    if (replies.error().code == Code::kInvalidArgument) co_return;  // no digest
    runtime_.log.error("an outcome could not be read; the site asks again", {{"reason", replies.error().to_string()}});
    co_return;
  }
  for (v1::Envelope& reply : *replies) hub_.send(child, std::move(reply));
}

}  // namespace fluvial::coordinator

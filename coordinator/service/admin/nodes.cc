// Members: who is in the federation, and what a person does about one of them.
#include <boost/asio/awaitable.hpp>
#include <boost/json.hpp>
#include <utility>

#include "coordinator/service/admin/resources.h"
#include "coordinator/service/admin/waits.h"
#include "coordinator/service/json.h"
#include "coordinator/service/pace_report.h"

namespace fluvial::coordinator::admin {
namespace {

namespace json = boost::json;

net::Awaitable<Reply> list_nodes(Context* admin, Call call) {
  const bool all = call.request.query.contains("all");
  const Registry& registry = admin->root.registry();
  const Federation& book = registry.book();
  const RollCall& calls = admin->root.runs().roll_call();
  const ActiveRun* active = admin->root.runs().active();
  json::array nodes;
  for (const auto& [id, row] : book.nodes()) {
    if (row.removed_at && !all) continue;
    const auto member = book.members().find(id);
    const bool connected = member != book.members().end();
    const LeaseEntry* lease = book.lease_of(id);
    const auto ahead = registry.ahead().find(id);
    const std::optional<Activity> activity = calls.activity_of(id);
    json::object node{{"id", id.value()},
                      {"name", row.name},
                      {"role", role_name(row.role)},
                      {"region", row.region},
                      {"weight_max", row.weight_max},
                      {"connected", connected},
                      {"enrolled_at", utc(row.enrolled_at)},
                      {"advertise", row.advertise},
                      {"revoked", row.revoked_at.has_value()},
                      {"quarantined", row.quarantined_at.has_value()},
                      {"quarantine_reason", row.quarantine_reason},
                      {"ahead", ahead == registry.ahead().end() ? "" : ahead->second},
                      {"removed", row.removed_at.has_value()},
                      {"parent", nullptr},
                      {"lease_epoch", nullptr},
                      {"parent_wished", nullptr},
                      {"since", utc(calls.stay_of(id).since)},
                      {"workers", nullptr},
                      {"expected", nullptr},
                      {"doing", doing_json(activity)},
                      {"progress", progress_json(activity)},
                      {"certificate_ends_at", nullptr},
                      {"bytes", nullptr},
                      {"past", nullptr},
                      {"pace", nullptr}};
    if (lease != nullptr) {
      node["parent"] = lease->parent == NodeId(0) ? "coordinator" : book.name_of(lease->parent);
      node["lease_epoch"] = lease->epoch.value();
    }
    if (!row.revoked_at) {
      const NodeId wished = book.parent_wished(id);
      node["parent_wished"] = wished == NodeId(0) ? "coordinator" : book.name_of(wished);
    }
    if (activity) {
      if (row.role == Role::kSite) node["workers"] = activity->workers;
      node["certificate_ends_at"] = time_json(activity->certificate_ends);
    }
    if (const round::NodeReport* report = connected ? admin->root.reports().of(id) : nullptr) {
      node["bytes"] = json::object{{"up", report->bytes_up}, {"down", report->bytes_down}};
    }
    const auto detour = connected ? book.detour_of(id, admin->runtime.clock.now()) : std::nullopt;
    if (detour) {
      node["past"] = json::object{{"aggregator", book.name_of(detour->past)}, {"reason", detour->reason}};
    }
    if (active && row.role == Role::kSite) node["expected"] = expected_name(active->machine.attendance().of(id));
    const round::SitePace* pace = active ? active->machine.pace().find(id) : nullptr;
    if (pace != nullptr) node["pace"] = pace_object(*pace);
    nodes.push_back(std::move(node));
  }
  co_return json::serialize(json::object{{"nodes", std::move(nodes)}});
}

net::Awaitable<Reply> revoke_node(Context* admin, Call call) {
  const std::string& name = call.names[0];
  const Result<NodeId> revoked = co_await admin->root.registry().revoke(name, call.entry(store::AuditKind::kRevoked));
  if (!revoked.ok()) co_return revoked.error();
  if (admin->book().nodes().contains(*revoked)) admin->root.runs().members().revoked(*revoked);
  admin->runtime.log.info("node revoked", {{"member", name}});
  co_return json::serialize(json::object{{"revoked", name}});
}

net::Awaitable<Reply> remove_node(Context* admin, Call call) {
  const std::string& name = call.names[0];
  const Result<NodeId> removed = co_await admin->root.registry().remove(name, call.entry(store::AuditKind::kRemoved));
  if (!removed.ok()) co_return removed.error();
  if (admin->book().nodes().contains(*removed)) admin->root.runs().members().revoked(*removed);
  admin->runtime.log.info("node removed", {{"member", name}});
  co_return json::serialize(json::object{{"removed", name}});
}

net::Awaitable<Reply> clear(Context* admin, Call call) {
  const std::string& name = call.names[0];
  const Result<NodeId> cleared =
      co_await admin->root.registry().clear(name, call.entry(store::AuditKind::kQuarantineLifted));
  if (!cleared.ok()) co_return cleared.error();
  admin->root.runs().members().quarantine_changed();
  admin->runtime.log.info("quarantine lifted", {{"site", name}});
  co_return json::serialize(json::object{{"cleared", name}});
}

}  // namespace

void add_nodes(Router& router) {
  router.get("/v1/nodes", list_nodes);
  router.post("/v1/nodes/{name}/revoke", revoke_node);
  router.post("/v1/nodes/{name}/remove", remove_node);
  router.post("/v1/nodes/{name}/clear", clear);
}

}  // namespace fluvial::coordinator::admin

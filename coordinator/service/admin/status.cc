// The coordinator in one object.
#include <boost/asio/awaitable.hpp>
#include <boost/json.hpp>
#include <utility>

#include "coordinator/service/admin/resources.h"
#include "coordinator/service/admin/waits.h"
#include "coordinator/service/json.h"
#include "core/tree/limits.h"
#include "core/tree/version.h"

namespace fluvial::coordinator::admin {
namespace {

namespace json = boost::json;

// What restores there were, what of the histories before is lost as far as members say, and who says that the journal
// is an older copy.
json::object history_json(const Registry& registry) {
  json::array lost;
  for (const store::LostRow& row : registry.lost()) {
    lost.push_back({{"run", row.known.run.value()},
                    {"round", row.known.round.value()},
                    {"site", registry.book().name_of(row.site)},
                    {"update", registry.known_name(row)},
                    {"digest", to_hex(row.known.digest)}});
  }
  json::array ahead;
  for (const auto& [node, reason] : registry.ahead()) {
    ahead.push_back({{"name", registry.book().name_of(node)}, {"reason", reason}});
  }
  return {{"restores", registry.lineage().size()},
          {"began_at_epoch", round::began_of(registry.lineage()).value()},
          {"lost", std::move(lost)},
          {"ahead", std::move(ahead)}};
}

json::object run_now(const Context& admin, const RunMachine& machine) {
  const bool waiting = machine.status() == RunStatus::kRunning && !machine.is_open();
  json::object run{{"id", machine.run().value()},
                   {"name", machine.plan().name},
                   {"status", run_status_name(machine.status())},
                   {"reason", waiting ? "" : machine.reason()},
                   {"round", machine.last_committed().value()},
                   {"rounds", machine.plan().rounds},
                   {"codec", machine.plan().codec},
                   {"mode", machine.plan().mode},
                   {"down", machine.plan().down},
                   {"model_sha256", to_hex(machine.model().digest)},
                   {"pausing", machine.pausing().value_or("")},
                   {"waiting", waiting ? machine.reason() : ""},
                   {"open", open_json(admin, machine)}};
  return run;
}

net::Awaitable<Reply> show_status(Context* admin, Call) { co_return status_json(*admin); }

}  // namespace

std::string status_json(const Context& admin) {
  const Facts& facts = admin.facts;
  const Federation& book = admin.book();
  std::size_t sites = 0;
  for (const auto& [id, member] : book.members()) sites += member.role == Role::kSite ? 1 : 0;
  std::size_t enrolled = 0;
  std::size_t sites_enrolled = 0;
  for (const auto& [id, node] : book.nodes()) {
    if (node.revoked_at || node.removed_at) continue;
    ++enrolled;
    sites_enrolled += node.role == Role::kSite ? 1 : 0;
  }
  json::object object{{"role", "coordinator"},
                      {"federation", facts.federation},
                      {"version", tree::kVersion},
                      {"pin", facts.pin},
                      {"member_port", facts.member_port},
                      {"enrol_port", facts.enrol_port},
                      {"metrics_port", facts.metrics_port},
                      {"admin_port", facts.admin_port},
                      {"sites_connected", sites},
                      {"sites_enrolled", sites_enrolled},
                      {"aggregators_connected", book.members().size() - sites},
                      {"aggregators_enrolled", enrolled - sites_enrolled},
                      {"staging_bytes", admin.root.hub().budget().bytes_used()},
                      {"staging_bytes_max", admin.root.hub().budget().bytes_max()},
                      {"fault", admin.root.runs().fault()},
                      {"limits", json::parse(tree::to_json(tree::own_limits()))},
                      {"history", history_json(admin.root.registry())},
                      {"last_backup", nullptr},
                      {"run", nullptr},
                      {"runs", json::array()},
                      {"waits", waits_json(admin)},
                      {"problems", problems_json(admin)}};
  if (admin.authorities != nullptr) {
    const auto authority = admin.authorities->live()->current();
    object["authority"] = json::object{
        {"phase", phase_name(phase_of(*authority))}, {"trust", authority->trust()}, {"pin", authority->pin()}};
  }
  if (admin.last_backup) object["last_backup"] = utc(*admin.last_backup);
  if (const ActiveRun* active = admin.root.runs().active()) {
    object["run"] = run_now(admin, active->machine);
    object["runs"].as_array().push_back(object["run"]);
  }
  return json::serialize(object);
}

void add_status(Router& router) { router.get("/v1/status", show_status); }

}  // namespace fluvial::coordinator::admin

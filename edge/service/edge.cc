#include "edge/service/edge.h"

#include <unistd.h>

#include <boost/json.hpp>
#include <memory>
#include <string>
#include <utility>

#include "core/identity/authority.h"
#include "core/net/proxy.h"
#include "edge/service/site.h"

namespace fluvial::edge {
namespace {

std::string ready_json(const Site& site, std::uint16_t metrics_port) {
  const boost::json::object ready{{"role", "site"},
                                  {"name", site.name()},
                                  {"worker_socket", site.worker_socket()},
                                  {"metrics_port", metrics_port},
                                  {"pid", static_cast<std::int64_t>(::getpid())}};
  return boost::json::serialize(ready);
}

}  // namespace

Status run_edge(config::EdgeSettings settings, store::FileSystem& files, telemetry::Logger log,
                tree::OnReady on_ready) {
  FLUVIAL_ASSIGN(Member member, load_member(settings));
  const std::string name = member.self.name;
  tree::Process process(settings, Role::kSite, files,
                        log.as({{"role", role_name(Role::kSite)},
                                {"federation", identity::federation_of(member.credentials)},
                                {"node", name},
                                {"site", name}}));
  process.set_certificate_end(member.self.not_after);
  FLUVIAL_ASSIGN(process.runtime().session.proxy, net::proxy_rules(settings.proxy, settings.no_proxy));
  FLUVIAL_ASSIGN(const std::unique_ptr<Site> site,
                 Site::open(process.runtime(), settings, std::move(member),
                            {.tasks = process.tasks(),
                             .set_ready = [&process](bool ready) { process.set_ready(ready); },
                             .request_stop = [&process] { process.request_stop(); },
                             .renewed = [&process](WallTime ends) { process.set_certificate_end(ends); }}));
  FLUVIAL_ASSIGN(const std::uint16_t metrics_port, process.open_http({[&] { return site->status_json(); }, {}}));
  process.runtime().log.info("site started",
                             {{"worker_socket", site->worker_socket()}, {"coordinator", settings.coordinator}});
  if (on_ready) on_ready(ready_json(*site, metrics_port));
  FLUVIAL_TRY(process.run([&site] { site->stop(); }));
  process.runtime().log.info("site stopped");
  return site->failure();
}

}  // namespace fluvial::edge

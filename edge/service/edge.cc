#include "edge/service/edge.h"

#include <unistd.h>

#include <boost/json.hpp>
#include <memory>
#include <string>
#include <utility>

#include "core/identity/authority.h"
#include "core/identity/credentials.h"
#include "core/identity/random.h"
#include "core/identity/tls.h"
#include "core/net/proxy.h"
#include "core/store/site_store.h"
#include "core/tree/process.h"
#include "edge/service/local_workers.h"
#include "edge/service/log_report.h"
#include "edge/service/service.h"

namespace fluvial::edge {
namespace {

struct Member {
  identity::PeerIdentity self;
  std::shared_ptr<const identity::TlsContext> tls;
  identity::PrivateKey key;
  std::uint64_t enrolled_before = 0;
  std::string federation;
  WallTime certificate_ends;
};

Result<Member> load_member(const config::EdgeSettings& settings) {
  const std::string folder = store::join_path(settings.data_dir, "identity");
  const Result<identity::Credentials> credentials = identity::load_credentials(folder);
  if (!credentials.ok()) {
    if (credentials.error().code != Code::kNotFound) return credentials.error();
    return Error{Code::kNotFound, "this site is not enrolled: there are no credentials in " + folder +
                                      "; run: fluvial enroll --coordinator host:port --token TOKEN --data-dir " +
                                      settings.data_dir};
  }
  FLUVIAL_ASSIGN(identity::PeerIdentity self, identity::identity_of(credentials->chain.front()));
  if (self.role != Role::kSite) {
    return Error{Code::kFailedPrecondition,
                 "the certificate in " + folder + " is for " + identity::describe(self) + ", expected a site's"};
  }
  FLUVIAL_ASSIGN(std::shared_ptr<const identity::TlsContext> tls, identity::TlsContext::member_client(*credentials));
  const WallTime certificate_ends = credentials->chain.front().not_after();
  return Member{std::move(self),
                std::move(tls),
                credentials->key,
                credentials->enrolled_before,
                identity::federation_of(credentials->authority),
                certificate_ends};
}

tree::UplinkOptions uplink_options(net::HostPort coordinator, NodeId node, Incarnation incarnation) {
  tree::UplinkOptions options;
  options.coordinator = std::move(coordinator);
  options.incarnation = incarnation;
  options.software = tree::software_name();
  options.process = identity::random_u64();
  options.jitter_seed = (static_cast<std::uint64_t>(node.value()) << 32) ^ incarnation.value();
  return options;
}

std::string ready_json(const std::string& name, const std::string& worker_socket, std::uint16_t metrics_port) {
  const boost::json::object ready{{"role", "site"},
                                  {"name", name},
                                  {"worker_socket", worker_socket},
                                  {"metrics_port", metrics_port},
                                  {"pid", static_cast<std::int64_t>(::getpid())}};
  return boost::json::serialize(ready);
}

}  // namespace

Status run_edge(config::EdgeSettings settings, store::FileSystem& files, telemetry::Logger log,
                tree::OnReady on_ready) {
  if (settings.worker_socket.empty()) settings.worker_socket = store::join_path(settings.data_dir, "worker.sock");
  FLUVIAL_ASSIGN(Member member, load_member(settings));
  FLUVIAL_ASSIGN(const net::HostPort coordinator, net::parse_host_port(settings.coordinator));
  const std::string name = member.self.name;
  tree::Process process(
      settings, Role::kSite, files,
      log.as({{"role", role_name(Role::kSite)}, {"federation", member.federation}, {"node", name}, {"site", name}}));
  process.set_certificate_end(member.self.not_after);
  FLUVIAL_ASSIGN(process.runtime().session.proxy, net::proxy_rules(settings.proxy, settings.no_proxy));
  FLUVIAL_ASSIGN(std::unique_ptr<store::SiteStore> store,
                 store::SiteStore::open(process.runtime().files, store::join_path(settings.data_dir, "state"),
                                        member.enrolled_before));
  FLUVIAL_ASSIGN(std::shared_ptr<SiteGpus> gpus, open_gpus(settings.gpus, process.runtime().log));
  LocalWorkers workers(process.runtime(), settings, name, gpus);
  telemetry::Metrics& metrics = process.runtime().metrics;
  metrics.gauge("workers_expected").set(static_cast<double>(settings.workers));
  metrics.gauge("gpus").set(gpus ? static_cast<double>(gpus->devices().size()) : 0);
  LogReport report(metrics, process.runtime().log, process.runtime().clock);
  EdgeService service(process.runtime(), settings,
                      {.uplink = uplink_options(coordinator, member.self.node, store->incarnation()),
                       .dial = tree::dial_over_tls(process.runtime(), std::move(member.tls)),
                       .self = std::move(member.self),
                       .store = std::move(store),
                       .gpus = std::move(gpus),
                       .trainers = workers,
                       .report = report,
                       .tasks = process.tasks(),
                       .set_ready = [&process](bool ready) { process.set_ready(ready); },
                       .request_stop = [&process] { process.request_stop(); },
                       .certificate_ends = member.certificate_ends,
                       .key = std::move(member.key)});
  FLUVIAL_TRY(service.open());
  FLUVIAL_ASSIGN(const std::uint16_t metrics_port,
                 process.open_http({[&] { return report.status_json(service.status()); }, {}}));
  process.runtime().log.info("site started",
                             {{"worker_socket", settings.worker_socket}, {"coordinator", settings.coordinator}});
  if (on_ready) on_ready(ready_json(name, settings.worker_socket, metrics_port));
  process.run([&service] { service.stop(); });
  process.runtime().log.info("site stopped");
  return service.failure();
}

}  // namespace fluvial::edge

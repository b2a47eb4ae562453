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
  identity::Credentials credentials;
  std::shared_ptr<identity::LiveTls> tls;
};

std::string identity_folder(const config::EdgeSettings& settings) {
  return store::join_path(settings.data_dir, "identity");
}

Result<Member> load_member(const config::EdgeSettings& settings) {
  const std::string folder = identity_folder(settings);
  Result<identity::Credentials> credentials = identity::load_credentials(folder);
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
  return Member{std::move(self), std::move(*credentials), identity::live(std::move(tls))};
}

tree::UplinkOptions uplink_options(const config::EdgeSettings& settings, const tree::Renewal& renewal,
                                   net::HostPort coordinator, NodeId node, Incarnation incarnation) {
  tree::UplinkOptions options;
  options.verify = renewal.verifier();
  options.past_certificate_max = std::chrono::milliseconds(settings.session.past_certificate_max_ms);
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
  tree::Process process(settings, Role::kSite, files,
                        log.as({{"role", role_name(Role::kSite)},
                                {"federation", identity::federation_of(member.credentials)},
                                {"node", name},
                                {"site", name}}));
  process.set_certificate_end(member.self.not_after);
  FLUVIAL_ASSIGN(process.runtime().session.proxy, net::proxy_rules(settings.proxy, settings.no_proxy));
  FLUVIAL_ASSIGN(std::unique_ptr<store::SiteStore> store,
                 store::SiteStore::open(process.runtime().files, store::join_path(settings.data_dir, "state"),
                                        member.credentials.enrolled_before));
  FLUVIAL_ASSIGN(std::shared_ptr<SiteGpus> gpus, open_gpus(settings.gpus, process.runtime().log));
  LocalWorkers workers(process.runtime(), settings, name, gpus);
  telemetry::Metrics& metrics = process.runtime().metrics;
  metrics.gauge("workers_expected").set(static_cast<double>(settings.workers));
  metrics.gauge("gpus").set(gpus ? static_cast<double>(gpus->devices().size()) : 0);
  LogReport report(metrics, process.runtime().log, process.runtime().clock);
  const tree::Dial dial = tree::dial_over_tls(process.runtime(), member.tls);
  tree::Renewal renewal(process.runtime(), {.credentials = member.credentials,
                                            .folder = identity_folder(settings),
                                            .coordinator = coordinator,
                                            .enrolment = tree::enrol_address(settings.enrol_address,
                                                                             identity_folder(settings), coordinator),
                                            .dial = dial,
                                            .client = member.tls,
                                            .jitter_seed = identity::random_u64(),
                                            .tick_max = tree::look_every(settings.session)});
  EdgeService service(process.runtime(), settings,
                      {.uplink = uplink_options(settings, renewal, coordinator, member.self.node, store->incarnation()),
                       .dial = renewal.watching(dial),
                       .self = std::move(member.self),
                       .store = std::move(store),
                       .gpus = std::move(gpus),
                       .trainers = workers,
                       .report = report,
                       .tasks = process.tasks(),
                       .set_ready = [&process](bool ready) { process.set_ready(ready); },
                       .request_stop = [&process] { process.request_stop(); },
                       .certificate_ends = renewal.ends(),
                       .renewal = &renewal,
                       .key = member.credentials.key});
  renewal.tell(
      [&service](const std::string& chain_pem, WallTime ends) { service.certificate_renewed(chain_pem, ends); },
      [&service] { service.look_at_certificates(); });
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

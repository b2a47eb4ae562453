#include "aggregator/service/aggregator.h"

#include <unistd.h>

#include <boost/json.hpp>
#include <utility>

#include "aggregator/service/incarnation.h"
#include "aggregator/service/region_report.h"
#include "aggregator/service/region_service.h"
#include "core/identity/authority.h"
#include "core/identity/credentials.h"
#include "core/identity/random.h"
#include "core/net/proxy.h"
#include "core/store/file_system.h"

namespace fluvial::aggregator {
namespace {

// "host:0" advertises the port that was bound.
std::string advertised(const std::string& setting, std::uint16_t port) {
  const Result<config::HostPort> address = config::parse_host_port(setting);
  FLUVIAL_CHECK(address.ok(), "settings are validated");
  return config::format_host_port({address->host, address->port == 0 ? port : address->port});
}

Result<identity::Credentials> enrolled(const std::string& identity_folder, const std::string& data_dir) {
  Result<identity::Credentials> credentials = identity::load_credentials(identity_folder);
  if (credentials.ok()) return credentials;
  return Error{credentials.error().code,
               credentials.error().message + "; enrol this node first: fluvial enroll --data-dir " + data_dir};
}

tree::HubOptions children(const config::AggregatorSettings& settings, const config::HostPort& listen,
                          const std::string& spill, NodeId self, const tree::Renewal& renewal) {
  return {.host = listen.host,
          .port = listen.port,
          .sessions_max = settings.session.sessions_max,
          .staging_bytes_max = settings.staging_bytes_max,
          .spill_folder = spill,
          .self = self,
          .software = tree::software_name(),
          .budget = settings.budget,
          .verify = renewal.verifier(),
          .past_certificate_max = std::chrono::milliseconds(settings.session.past_certificate_max_ms)};
}

std::string ready_line(const std::string& name, std::uint16_t port, std::uint16_t metrics_port) {
  return boost::json::serialize(boost::json::object{
      {"role", "aggregator"}, {"name", name}, {"port", port}, {"metrics_port", metrics_port}, {"pid", getpid()}});
}

}  // namespace

Status run_aggregator(config::AggregatorSettings settings, store::FileSystem& files, telemetry::Logger log,
                      tree::OnReady on_ready) {
  const std::string identity_folder = store::join_path(settings.data_dir, "identity");
  FLUVIAL_ASSIGN(const identity::Credentials credentials, enrolled(identity_folder, settings.data_dir));
  FLUVIAL_ASSIGN(const identity::PeerIdentity self, identity::identity_of(credentials.chain.front()));
  FLUVIAL_TRY(identity::may_speak_as(self, Role::kAggregator));
  FLUVIAL_ASSIGN(const auto server_context, identity::TlsContext::member_server(credentials));
  FLUVIAL_ASSIGN(const auto client_context, identity::TlsContext::member_client(credentials));
  const auto server_tls = identity::live(server_context);
  const auto client_tls = identity::live(client_context);
  FLUVIAL_ASSIGN(const config::HostPort listen, config::parse_host_port(settings.listen));
  FLUVIAL_ASSIGN(const config::HostPort coordinator, config::parse_host_port(settings.coordinator));

  tree::Process process(settings, Role::kAggregator, files,
                        log.as({{"role", role_name(Role::kAggregator)},
                                {"federation", identity::federation_of(credentials)},
                                {"node", self.name}}));
  process.set_certificate_end(self.not_after);
  tree::Runtime& runtime = process.runtime();
  FLUVIAL_ASSIGN(runtime.session.proxy, net::proxy_rules(settings.proxy, settings.no_proxy));
  const std::string spill = store::join_path(settings.data_dir, "spill");
  FLUVIAL_TRY(runtime.files.make_folder(spill));
  FLUVIAL_ASSIGN(const Incarnation incarnation,
                 next_incarnation(runtime.files, store::join_path(settings.data_dir, "incarnation")));

  const tree::Dial dial = tree::dial_over_tls(runtime, client_tls);
  const net::HostPort to_coordinator{coordinator.host, coordinator.port};
  tree::Renewal renewal(runtime,
                        {.credentials = credentials,
                         .folder = identity_folder,
                         .coordinator = to_coordinator,
                         .enrolment = tree::enrol_address(settings.enrol_address, identity_folder, to_coordinator),
                         .dial = dial,
                         .client = client_tls,
                         .server = server_tls,
                         .jitter_seed = identity::random_u64(),
                         .tick_max = tree::look_every(settings.session)});

  RegionReport report(runtime.metrics, runtime.log);
  RegionService service(runtime, process.tasks(), self, report, children(settings, listen, spill, self.node, renewal),
                        std::chrono::milliseconds(settings.parentless_max_ms));
  service.with_renewal(renewal);
  FLUVIAL_ASSIGN(const std::uint16_t port, service.hub().open(server_tls));
  tree::Uplink uplink(runtime, service,
                      {to_coordinator,
                       advertised(settings.advertise, port),
                       incarnation,
                       tree::software_name(),
                       identity::random_u64(),
                       {},
                       identity::random_u64(),
                       renewal.verifier(),
                       std::chrono::milliseconds(settings.session.past_certificate_max_ms)},
                      renewal.watching(dial));
  service.attach(uplink, [&process](bool up) { process.set_ready(up); });
  FLUVIAL_ASSIGN(const std::uint16_t metrics_port,
                 process.open_http({[&service, name = self.name] { return service.status_json(name); }, {}}));
  process.spawn_vital("sum", service.run_lane());
  process.spawn_vital("members", service.hub().run());
  process.spawn_vital("uplink", uplink.run());
  process.spawn("renewal", renewal.run());
  runtime.log.info("aggregator ready", {{"port", port}, {"incarnation", incarnation}});
  if (on_ready) on_ready(ready_line(self.name, port, metrics_port));
  return process.run([&service] { service.stop(); });
}

}  // namespace fluvial::aggregator

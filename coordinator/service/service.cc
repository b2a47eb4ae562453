#include "coordinator/service/service.h"

#include <unistd.h>

#include <boost/json.hpp>
#include <set>
#include <utility>

#include "coordinator/service/backup.h"
#include "coordinator/service/coordinator.h"
#include "coordinator/service/json.h"
#include "coordinator/service/machine_users.h"
#include "core/identity/csr.h"
#include "core/identity/own_key.h"
#include "core/net/connector.h"
#include "core/store/audit_log.h"
#include "core/store/plan_json.h"
#include "core/tree/version.h"
#include "core/wire/mapping.h"

namespace fluvial::coordinator {
namespace {

constexpr const char* kOwnFolder = "coordinator";  // in the data folder: key.pem

config::HostPort address_of(const std::string& text) {
  const Result<config::HostPort> address = config::parse_host_port(text);
  FLUVIAL_CHECK(address.ok(), "settings are validated");
  return *address;
}

tree::HubOptions hub_options(const config::CoordinatorSettings& settings) {
  const config::HostPort listen = address_of(settings.listen);
  tree::HubOptions options;
  options.host = listen.host;
  options.port = listen.port;
  options.sessions_max = settings.session.sessions_max;
  options.staging_bytes_max = settings.staging_bytes_max;
  options.spill_folder = store::join_path(settings.data_dir, "spill");
  options.software = tree::software_name();
  options.budget = settings.budget;
  return options;
}

EnrolOptions enrol_options(const config::CoordinatorSettings& settings, Root& root) {
  const config::HostPort listen = address_of(settings.enrol_listen);
  return {listen.host,
          listen.port,
          settings.enrol_per_minute_max,
          settings.wrong_tokens_per_minute_max,
          std::chrono::days(settings.certificate_days),
          [&root](NodeId node) { root.replaced(node); }};
}

FailoverSettings failover_settings(const config::CoordinatorSettings& settings) {
  using std::chrono::milliseconds;
  return {milliseconds(settings.failover_after_ms), milliseconds(settings.unreachable_for_ms),
          milliseconds(settings.return_after_ms)};
}

std::string public_host(const config::CoordinatorSettings& settings) {
  if (!settings.public_host.empty()) return settings.public_host;
  const std::string host = address_of(settings.listen).host;
  if (host != "0.0.0.0" && host != "::") return host;
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "localhost";
}

// The coordinator's own certificate is made anew at each start, of the key that it keeps: what it signed stays its own.
Result<identity::Credentials> own_credentials(const std::string& data_dir,
                                              const identity::CertificateAuthority& authority, NodeId node,
                                              std::chrono::days validity, WallTime now) {
  FLUVIAL_ASSIGN(identity::PrivateKey key, identity::load_or_make_key(store::join_path(data_dir, kOwnFolder)));
  FLUVIAL_ASSIGN(const Buffer csr, identity::make_csr(key));
  const identity::Grant grant{{Role::kCoordinator, node, "coordinator"}, validity, {}, {}};
  FLUVIAL_ASSIGN(identity::Certificate certificate, authority.issue(csr.span(), grant, now));
  return identity::Credentials{std::move(key), {std::move(certificate)}, authority.certificate()};
}

}  // namespace

Result<Holdings> open_holdings(store::FileSystem& files, WallTime now, const telemetry::Logger& log,
                               const config::CoordinatorSettings& settings) {
  Holdings holdings;
  FLUVIAL_TRY(check_restored(files, settings.data_dir, false));
  FLUVIAL_TRY(files.make_folder(settings.data_dir));
  FLUVIAL_TRY(files.make_folder(store::join_path(settings.data_dir, "spill")));
  FLUVIAL_ASSIGN(holdings.journal,
                 store::CoordinatorJournal::open(files, store::join_path(settings.data_dir, "journal.sqlite")));
  FLUVIAL_ASSIGN(const std::optional<store::FederationRow> federation, holdings.journal->federation());
  if (!federation) FLUVIAL_TRY(holdings.journal->found({settings.federation, now}));
  holdings.federation = federation ? federation->name : settings.federation;
  FLUVIAL_ASSIGN(holdings.authority, identity::CertificateAuthority::create_or_open(
                                         store::join_path(settings.data_dir, "ca"), holdings.federation, now));
  FLUVIAL_ASSIGN(const NodeId node, holdings.journal->reserve_node_id(Role::kCoordinator, "coordinator"));
  FLUVIAL_ASSIGN(holdings.credentials, own_credentials(settings.data_dir, *holdings.authority, node,
                                                       std::chrono::days(settings.certificate_days), now));
  FLUVIAL_ASSIGN(holdings.models, store::ModelStore::open(files, store::join_path(settings.data_dir, "models")));
  FLUVIAL_ASSIGN(const std::vector<round::ModelKey> referenced, holdings.journal->referenced_models());
  FLUVIAL_ASSIGN(const std::size_t swept, holdings.models->sweep({referenced.begin(), referenced.end()}));
  if (swept > 0) log.info("model files without a record were removed", {{"files", swept}});
  FLUVIAL_ASSIGN(holdings.epoch, holdings.journal->next_epoch());
  return holdings;
}

Service::Service(tree::Process& process, const config::CoordinatorSettings& settings, Holdings holdings)
    : process_(process),
      runtime_(process.runtime()),
      settings_(settings),
      holdings_(std::move(holdings)),
      feed_(runtime_.strand),
      report_(runtime_.metrics, runtime_.log, feed_,
              [this](NodeId node) { return root_.registry().book().name_of(node); }),
      root_(runtime_, process.tasks(),
            {*holdings_.journal, *holdings_.models, holdings_.epoch, holdings_.credentials->key}, report_,
            hub_options(settings), failover_settings(settings)),
      run_gauges_(runtime_.metrics, root_.runs()),
      member_gauges_(runtime_, root_.registry(), root_.hub(), root_.runs().roll_call()),
      retention_(runtime_, *holdings_.journal, settings_),
      enrol_(runtime_, root_.registry(), *holdings_.journal, *holdings_.authority, enrol_options(settings, root_)),
      admin_(runtime_, *holdings_.journal, *holdings_.models, root_, feed_, holdings_.epoch) {
  evaluator_ = std::make_shared<Evaluator>(
      runtime_, process.tasks(),
      [this](RunId run, RoundId round, const round::Metrics& metrics) {
        process_.spawn("record evaluation", record_evaluation(run, round, metrics));
      },
      [this] { feed_.release(); });
  root_.runs().steps().on_commit(
      [this](const round::ModelRef& ref, SharedBytes model, std::shared_ptr<const round::Schema> schema) {
        evaluator_->committed(ref, std::move(model), std::move(schema));
        retention_.committed();
      });
  report_.say_where_by([this](SiteId site) {
    return phase_of(root_.registry().book().via(site) != NodeId(0), root_.runs().roll_call().activity_of(site));
  });
  report_.while_evaluating([this] { return evaluator_->is_busy(); });
}

Status Service::open() {
  FLUVIAL_TRY(root_.load());
  FLUVIAL_ASSIGN(const auto member_tls, identity::TlsContext::member_server(*holdings_.credentials));
  process_.set_certificate_end(holdings_.credentials->chain.front().not_after());
  FLUVIAL_ASSIGN(const auto enrol_tls, identity::TlsContext::enrol_server(*holdings_.credentials));
  FLUVIAL_ASSIGN(facts_.member_port, root_.hub().open(member_tls));
  FLUVIAL_ASSIGN(facts_.enrol_port, enrol_.open(enrol_tls));
  FLUVIAL_ASSIGN(facts_.metrics_port, process_.open_http({[this] { return admin_.status_json(); },
                                                          [this] { return root_.runs().fault(); }}));
  facts_.federation = holdings_.federation;
  facts_.data_dir = settings_.data_dir;
  facts_.pin = holdings_.authority->pin();
  facts_.enrol_address = net::to_string({public_host(settings_), facts_.enrol_port});
  facts_.token_ttl_s = settings_.token_ttl_s;
  admin_socket_ =
      settings_.admin_socket.empty() ? store::join_path(settings_.data_dir, "admin.sock") : settings_.admin_socket;
  worker_socket_ =
      settings_.worker_socket.empty() ? store::join_path(settings_.data_dir, "worker.sock") : settings_.worker_socket;
  FLUVIAL_TRY(admin_.open(admin_socket_, facts_, {settings_.admin_users, settings_.admin_readers}));
  FLUVIAL_TRY(evaluator_->open(worker_socket_));
  const store::AuditEntry started{
      .kind = store::AuditKind::kStarted, .user = own_user(), .detail = std::string("version ") + tree::kVersion};
  return store::AuditLog(*holdings_.journal).append(started, runtime_.clock.wall_now());
}

std::string Service::ready_json() const {
  return boost::json::serialize(boost::json::object{{"role", "coordinator"},
                                                    {"name", "coordinator"},
                                                    {"member_port", facts_.member_port},
                                                    {"enrol_port", facts_.enrol_port},
                                                    {"metrics_port", facts_.metrics_port},
                                                    {"admin_socket", admin_socket_},
                                                    {"worker_socket", worker_socket_},
                                                    {"pin", facts_.pin},
                                                    {"pid", getpid()}});
}

void Service::start() {
  process_.spawn("sum", root_.runs().run_lane());
  process_.spawn("members", root_.hub().run());
  process_.spawn("enrolment", enrol_.run(facts_.member_port));
  process_.spawn("admin", admin_.run());
  process_.spawn("events", admin_.run_events());
  process_.spawn("take up runs", root_.runs().take_up());
  process_.spawn("retention", retention_.run());
  root_.runs().members().quarantine_changed();
  process_.set_ready(true);
  runtime_.log.info("coordinator ready",
                    {{"members_address", net::to_string({address_of(settings_.listen).host, facts_.member_port})},
                     {"enrol_address", facts_.enrol_address},
                     {"epoch", holdings_.epoch},
                     {"pin", facts_.pin}});
}

void Service::stop() {
  runtime_.log.info("coordinator stopping");
  feed_.close();
  admin_.stop();
  enrol_.stop();
  root_.hub().stop();
  root_.runs().stop();
  retention_.stop();
  evaluator_->close();
}

void Service::record_stop() {
  const Status kept = store::AuditLog(*holdings_.journal)
                          .append({.kind = store::AuditKind::kStopped, .user = own_user()}, runtime_.clock.wall_now());
  if (!kept.ok()) {
    runtime_.log.warn("the audit log does not say that the coordinator stops; its next start does not depend on it",
                      {{"reason", kept.error().to_string()}});
  }
}

net::Awaitable<void> Service::record_evaluation(RunId run, RoundId round, round::Metrics metrics) {
  const Status kept =
      co_await runtime_.pool.run([&] { return holdings_.journal->set_evaluation(run, round, metrics); });
  if (!kept.ok()) {
    runtime_.log.error("an evaluation could not be recorded; it is told, and not kept",
                       {{"run", run}, {"round", round}, {"reason", kept.error().to_string()}});
  }
  runtime_.log.info("model evaluated", {{"run", run}, {"round", round}, {"metrics", store::metrics_to_json(metrics)}});
  report_.evaluated(metrics);
  feed_.publish({run, round, false, evaluated_line(run, round, metrics)});
  if (!evaluator_->is_busy()) feed_.release();
}

namespace {

// As the journal has it, if there is one; read ahead, since every line of the log names it.
Result<std::string> federation_name(store::FileSystem& files, const config::CoordinatorSettings& settings) {
  FLUVIAL_TRY(check_restored(files, settings.data_dir, false));
  FLUVIAL_TRY(files.make_folder(settings.data_dir));
  FLUVIAL_ASSIGN(const std::unique_ptr<store::CoordinatorJournal> journal,
                 store::CoordinatorJournal::open(files, store::join_path(settings.data_dir, "journal.sqlite")));
  FLUVIAL_ASSIGN(const std::optional<store::FederationRow> federation, journal->federation());
  return federation ? federation->name : settings.federation;
}

}  // namespace

Status run_coordinator(config::CoordinatorSettings settings, store::FileSystem& files, telemetry::Logger log,
                       tree::OnReady on_ready) {
  log = log.as({{"role", role_name(Role::kCoordinator)}, {"node", "coordinator"}});
  FLUVIAL_ASSIGN(const std::string federation, federation_name(files, settings));
  tree::Process process(settings, Role::kCoordinator, files, log.as({{"federation", federation}}));
  const tree::Runtime& runtime = process.runtime();
  FLUVIAL_ASSIGN(Holdings holdings, open_holdings(runtime.files, runtime.clock.wall_now(), runtime.log, settings));
  Service service(process, settings, std::move(holdings));
  FLUVIAL_TRY(service.open());
  service.start();
  if (on_ready) on_ready(service.ready_json());
  process.run([&service] { service.stop(); });
  service.record_stop();
  return {};
}

}  // namespace fluvial::coordinator

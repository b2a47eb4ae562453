#include "coordinator/service/service.h"

#include <unistd.h>

#include <boost/asio/ip/address.hpp>
#include <boost/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "coordinator/service/backup.h"
#include "coordinator/service/coordinator.h"
#include "coordinator/service/json.h"
#include "coordinator/service/machine_users.h"
#include "coordinator/service/preflight.h"
#include "core/identity/csr.h"
#include "core/identity/own_key.h"
#include "core/identity/token.h"
#include "core/identity/verify.h"
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

// For what children say of themselves while a session goes on.
std::function<Result<identity::PeerIdentity>(const std::string&)> verifier(
    std::shared_ptr<const identity::LiveAuthority> authority, const Clock& clock) {
  return [authority = std::move(authority), &clock](const std::string& pem) -> Result<identity::PeerIdentity> {
    FLUVIAL_ASSIGN(const std::vector<identity::Certificate> chain, identity::Certificate::chain_from_pem(pem));
    return identity::verify_chain(chain, authority->current()->authorities(), clock.wall_now(), {});
  };
}

tree::HubOptions hub_options(const config::CoordinatorSettings& settings,
                             std::shared_ptr<const identity::LiveAuthority> authority, const Clock& clock) {
  const config::HostPort listen = address_of(settings.listen);
  tree::HubOptions options;
  options.host = listen.host;
  options.port = listen.port;
  options.sessions_max = settings.session.sessions_max;
  options.staging_bytes_max = settings.staging_bytes_max;
  options.spill_folder = store::join_path(settings.data_dir, "spill");
  options.software = tree::software_name();
  options.budget = settings.budget;
  options.verify = verifier(std::move(authority), clock);
  options.past_certificate_max = std::chrono::milliseconds(settings.session.past_certificate_max_ms);
  return options;
}

RenewalOptions renewal_options(const config::CoordinatorSettings& settings) {
  return {settings.certificate_validity(), std::chrono::seconds(settings.renew_ended_max_s),
          settings.enrol_per_minute_max};
}

EnrolOptions enrol_options(const config::CoordinatorSettings& settings, Root& root) {
  const config::HostPort listen = address_of(settings.enrol_listen);
  return {listen.host,
          listen.port,
          settings.enrol_per_minute_max,
          settings.wrong_tokens_per_minute_max,
          settings.certificate_validity(),
          std::chrono::days(settings.operator_certificate_days),
          [&root](NodeId node) { root.replaced(node); }};
}

FailoverSettings failover_settings(const config::CoordinatorSettings& settings) {
  using std::chrono::milliseconds;
  return {milliseconds(settings.failover_after_ms), milliseconds(settings.unreachable_for_ms),
          milliseconds(settings.return_after_ms)};
}

AuthorityOptions authority_options(const config::CoordinatorSettings& settings, const std::string& federation) {
  AuthorityOptions options{.data_dir = settings.data_dir,
                           .federation = federation,
                           .validity = settings.certificate_validity(),
                           .grace = std::chrono::seconds(settings.renew_ended_max_s)};
  const config::AuthoritySettings& files = settings.authority;
  if (!files.certificate.empty()) options.files = {files.certificate, files.key, files.root};
  return options;
}

std::string public_host(const config::CoordinatorSettings& settings) {
  if (!settings.public_host.empty()) return settings.public_host;
  const std::string host = address_of(settings.listen).host;
  if (host != "0.0.0.0" && host != "::") return host;
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "localhost";
}

// By these a program that checks host names, such as curl, knows the coordinator; members know it by its role.
void add_names(const config::CoordinatorSettings& settings, identity::Grant* grant) {
  std::set<std::string> hosts = {"localhost", "127.0.0.1", public_host(settings)};
  if (settings.admin_listen != "off") hosts.insert(address_of(settings.admin_listen).host);
  for (const std::string& host : hosts) {
    boost::system::error_code no_address;
    const auto address = boost::asio::ip::make_address(host, no_address);
    if (no_address) {
      if (identity::is_host_name(host)) grant->dns_names.push_back(host);
    } else if (!address.is_unspecified()) {
      grant->ip_addresses.push_back(host);
    }
  }
}

Result<std::unique_ptr<OwnCertificate>> own_certificate(const config::CoordinatorSettings& settings,
                                                        std::shared_ptr<identity::LiveAuthority> authority, NodeId node,
                                                        WallTime now) {
  FLUVIAL_ASSIGN(identity::PrivateKey key, identity::load_or_make_key(store::join_path(settings.data_dir, kOwnFolder)));
  identity::Grant grant{{Role::kCoordinator, node, "coordinator"}, settings.certificate_validity(), {}, {}};
  add_names(settings, &grant);
  return OwnCertificate::make(std::move(key), std::move(grant), std::move(authority), now);
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
  if (!federation) FLUVIAL_TRY(found_federation(*holdings.journal, settings, now, log));
  holdings.federation = federation ? federation->name : settings.federation;
  const AuthorityOptions authority = authority_options(settings, holdings.federation);
  FLUVIAL_ASSIGN(holdings.authorities, Authorities::open(*holdings.journal, authority, log, now));
  holdings.authority = holdings.authorities->live();
  FLUVIAL_ASSIGN(const NodeId node, holdings.journal->reserve_node_id(Role::kCoordinator, "coordinator"));
  FLUVIAL_ASSIGN(holdings.own, own_certificate(settings, holdings.authority, node, now));
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
      root_(runtime_, process.tasks(), {*holdings_.journal, *holdings_.models, holdings_.epoch, holdings_.own->key()},
            report_, hub_options(settings, holdings_.authority, runtime_.clock), failover_settings(settings)),
      run_gauges_(runtime_.metrics, root_.runs()),
      member_gauges_(runtime_, root_.registry(), root_.hub(), root_.runs().roll_call()),
      retention_(runtime_, *holdings_.journal, settings_),
      renewals_(runtime_, root_.registry(), *holdings_.journal, *holdings_.authority, renewal_options(settings)),
      admissions_(runtime_, *holdings_.journal),
      enrol_(runtime_, root_.registry(), *holdings_.journal, *holdings_.authority, renewals_,
             enrol_options(settings, root_)),
      admin_(runtime_, *holdings_.journal, *holdings_.models, root_, feed_, holdings_.epoch) {
  root_.with_renewals(renewals_);
  root_.with_admissions(admissions_);
  admin_.with_admissions(admissions_);
  root_.registry().with_renewal(
      [this] { return Registry::RenewalTerms{renewals_.validity(), holdings_.authority->current()->trust()}; });
  holdings_.own->on_renewed([this] { own_renewed(); });
  evaluator_ = std::make_shared<Evaluator>(
      runtime_, process.tasks(),
      [this](RunId run, RoundId round, const round::Metrics& metrics) {
        recording_.insert(run);
        process_.spawn("record evaluation", record_evaluation(run, round, metrics));
      },
      [this] { release_ends(); });
  root_.runs().steps().on_commit(
      [this](const round::ModelRef& ref, SharedBytes model, std::shared_ptr<const round::Schema> schema) {
        evaluator_->committed(ref, std::move(model), std::move(schema), root_.runs().active()->machine.plan());
        retention_.committed();
      });
  report_.say_where_by([this](SiteId site) {
    return phase_of(root_.registry().book().via(site) != NodeId(0), root_.runs().roll_call().activity_of(site));
  });
  report_.while_evaluating([this](RunId run) { return awaits_evaluation(run); });
  report_.when_taken_up(
      [this](const RunMachine& machine) { evaluator_->run_active({machine.run(), machine.plan().name}); });
  report_.when_over([this](RunId run, RunStatus status) {
    evaluator_->run_ended({run, root_.runs().active()->machine.plan().name, std::string(run_status_name(status))});
  });
}

Status Service::open() {
  FLUVIAL_TRY(root_.load());
  process_.set_certificate_end(holdings_.own->ends());
  FLUVIAL_ASSIGN(facts_.member_port, root_.hub().open(holdings_.own->member()));
  FLUVIAL_ASSIGN(facts_.enrol_port, enrol_.open(holdings_.own->enrol()));
  FLUVIAL_ASSIGN(facts_.metrics_port, process_.open_http({[this] { return admin_.status_json(); },
                                                          [this] { return root_.runs().fault(); }}));
  facts_.federation = holdings_.federation;
  facts_.data_dir = settings_.data_dir;
  facts_.pin = holdings_.authority->current()->pin();
  facts_.enrol_address = net::to_string({public_host(settings_), facts_.enrol_port});
  facts_.token_ttl_s = settings_.token_ttl_s;
  facts_.upload_bytes_max = settings_.upload_bytes_max;
  admin_socket_ =
      settings_.admin_socket.empty() ? store::join_path(settings_.data_dir, "admin.sock") : settings_.admin_socket;
  worker_socket_ =
      settings_.worker_socket.empty() ? store::join_path(settings_.data_dir, "worker.sock") : settings_.worker_socket;
  admin_.with_authorities(*holdings_.authorities, [this](WallTime now) { return holdings_.own->renew(now); });
  FLUVIAL_TRY(admin_.open(admin_socket_, facts_, {settings_.admin_users, settings_.admin_readers}));
  if (settings_.admin_listen != "off") FLUVIAL_TRY(open_network());
  FLUVIAL_TRY(evaluator_->open(worker_socket_));
  FLUVIAL_ASSIGN(const std::vector<store::RunRow> runs, holdings_.journal->runs());
  for (const store::RunRow& run : runs) {  // who comes to evaluate one of these waits in vain
    if (is_over(run.status)) evaluator_->run_ended({run.id, run.plan.name, std::string(run_status_name(run.status))});
  }
  const store::AuditEntry started{
      .kind = store::AuditKind::kStarted, .user = own_user(), .detail = std::string("version ") + tree::kVersion};
  return store::AuditLog(*holdings_.journal).append(started, runtime_.clock.wall_now());
}

void Service::own_renewed() {
  process_.set_certificate_end(holdings_.own->ends());
  root_.hub().tell_renewed(holdings_.own->chain_pem());
  runtime_.log.info("the coordinator's own certificate is renewed",
                    {{"certificate_ends_at", identity::format_utc(holdings_.own->ends())}});
}

Status Service::open_network() {
  const config::HostPort listen = address_of(settings_.admin_listen);
  auto renew = [authority = holdings_.authority, days = settings_.operator_certificate_days](
                   const identity::PeerIdentity& who, ByteSpan csr, WallTime now) -> Result<admin::Renewal> {
    const auto current = authority->current();
    const identity::Grant grant{{Role::kOperator, who.node, who.name}, std::chrono::days(days), {}, {}};
    FLUVIAL_ASSIGN(std::vector<identity::Certificate> chain, current->issue_chain(csr, grant, now));
    return admin::Renewal{std::move(chain), identity::Certificate::pem_of(current->authorities()), current->trust(),
                          current->key_id()};
  };
  FLUVIAL_ASSIGN(facts_.admin_port, admin_.open_network(
                                        {listen.host, listen.port},
                                        [tls = holdings_.own->admin()] { return tls->current(); }, std::move(renew)));
  return {};
}

std::string Service::ready_json() const {
  return boost::json::serialize(boost::json::object{{"role", "coordinator"},
                                                    {"name", "coordinator"},
                                                    {"member_port", facts_.member_port},
                                                    {"enrol_port", facts_.enrol_port},
                                                    {"metrics_port", facts_.metrics_port},
                                                    {"admin_socket", admin_socket_},
                                                    {"admin_port", facts_.admin_port},
                                                    {"worker_socket", worker_socket_},
                                                    {"pin", facts_.pin},
                                                    {"pid", getpid()}});
}

void Service::start() {
  process_.spawn_vital("sum", root_.runs().run_lane());
  process_.spawn_vital("members", root_.hub().run());
  process_.spawn("own certificate", holdings_.own->run(runtime_));
  process_.spawn("enrolment", enrol_.run(facts_.member_port));
  process_.spawn("admin", admin_.run());
  if (admin_.is_on_network()) process_.spawn("operators", admin_.run_network());
  process_.spawn("events", admin_.run_events());
  process_.spawn("uploads", admin_.run_uploads());
  process_.spawn_vital("take up runs", root_.runs().take_up());
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
  holdings_.own->stop();
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
  const Status kept = co_await runtime_.pool.run([&]() -> Status {
    FLUVIAL_TRY(holdings_.journal->set_evaluation(run, round, metrics));
    return root_.runs().steps().keeper().evaluated(run, round, metrics);
  });
  if (!kept.ok()) {
    runtime_.log.error("an evaluation could not be recorded; it is told, and not kept",
                       {{"run", run}, {"round", round}, {"reason", kept.error().to_string()}});
  }
  runtime_.log.info("model evaluated", {{"run", run}, {"round", round}, {"metrics", store::metrics_to_json(metrics)}});
  report_.evaluated(metrics);
  feed_.publish({run, round, false, evaluated_line(run, round, metrics)});
  recording_.erase(recording_.find(run));
  release_ends();
}

bool Service::awaits_evaluation(RunId run) const { return evaluator_->awaits(run) || recording_.contains(run); }

void Service::release_ends() {
  feed_.release_unless([this](RunId run) { return awaits_evaluation(run); });
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
  const Status ended = process.run([&service] { service.stop(); });
  service.record_stop();
  return ended;
}

}  // namespace fluvial::coordinator

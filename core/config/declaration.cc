#include "core/config/declaration.h"

#include <sys/un.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "core/config/setting_kinds.h"

namespace fluvial::config {
namespace {

constexpr std::uint64_t kDayMs = 86'400'000;
constexpr std::uint64_t kTebi = std::uint64_t{1} << 40;
constexpr std::uint64_t kMany = 1'000'000'000'000;
constexpr std::uint64_t kDaysMax = 36'500;

template <typename S>
void declare_session(Declare<S>& declare) {
  declare.milliseconds("session.handshake_deadline_ms", 10, kDayMs, FLUVIAL_FIELD(session.handshake_deadline_ms),
                       "TLS and the first frames of a new connection must be done by then");
  declare.milliseconds("session.frame_deadline_ms", 10, kDayMs, FLUVIAL_FIELD(session.frame_deadline_ms),
                       "a frame that has begun must make progress within this time");
  declare.bytes("session.min_rate_bytes_per_s", 0, kTebi, FLUVIAL_FIELD(session.min_rate_bytes_per_s),
                "a peer that sends or takes a frame slower than this is cut off; 0: no minimum");
  declare.milliseconds("session.heartbeat_interval_ms", 10, kDayMs, FLUVIAL_FIELD(session.heartbeat_interval_ms),
                       "a ping is sent after this long without any other frame");
  declare.milliseconds("session.heartbeat_timeout_ms", 10, kDayMs, FLUVIAL_FIELD(session.heartbeat_timeout_ms),
                       "a peer that is silent for this long is gone; must exceed heartbeat_interval_ms");
  declare.bytes("session.outbox_bytes_max", 1 << 20, kTebi, FLUVIAL_FIELD(session.outbox_bytes_max),
                "bytes waiting to be sent to one peer; senders wait beyond it");
  declare.count("session.sessions_max", 1, 1'000'000, FLUVIAL_FIELD(session.sessions_max),
                "connections at once; further ones are refused");
  declare.milliseconds("session.reconnect_delay_min_ms", 1, kDayMs, FLUVIAL_FIELD(session.reconnect_delay_min_ms),
                       "first delay before connecting again; it doubles, with jitter");
  declare.milliseconds("session.reconnect_delay_max_ms", 1, kDayMs, FLUVIAL_FIELD(session.reconnect_delay_max_ms),
                       "longest delay before connecting again");
  declare.milliseconds("session.drain_deadline_ms", 0, kDayMs, FLUVIAL_FIELD(session.drain_deadline_ms),
                       "how long sessions may go on sending what has begun after SIGTERM");
  declare.count("session.key_updates_max", 1, 1'000'000, FLUVIAL_FIELD(session.key_updates_max),
                "TLS key updates that a peer may send beyond one for each MiB of data; then the session ends");
  declare.milliseconds("session.past_certificate_max_ms", 100, 30 * kDayMs,
                       FLUVIAL_FIELD(session.past_certificate_max_ms),
                       "how long a session goes on after the peer's certificate has ended and no other was shown");
}

template <typename S>
void declare_budget(Declare<S>& declare) {
  declare.count("budget.strangers_max", 1, 1'000'000, FLUVIAL_FIELD(budget.strangers_max),
                "connections at once that have not proved to be a member's; a further one ends the one that has been "
                "still the longest");
  declare.count("budget.strangers_per_address_max", 1, 1'000'000, FLUVIAL_FIELD(budget.strangers_per_address_max),
                "as budget.strangers_max, of one IPv4 address or one /64 of IPv6");
  declare.bytes("budget.stranger_bytes_max", 4096, 4 << 20, FLUVIAL_FIELD(budget.stranger_bytes_max),
                "bytes that a peer may send before it is admitted; no payload is among them");
  declare.count("budget.sessions_per_member_max", 1, 10'000, FLUVIAL_FIELD(budget.sessions_per_member_max),
                "sessions at once of one member; a further one ends the oldest");
  declare.bytes("budget.payload_bytes_max", 8 << 20, kTebi, FLUVIAL_FIELD(budget.payload_bytes_max),
                "payload received and not yet staged, all members together; beyond it they wait");
  declare.bytes("budget.payload_bytes_per_member_max", 8 << 20, kTebi,
                FLUVIAL_FIELD(budget.payload_bytes_per_member_max), "as budget.payload_bytes_max, of one member");
  declare.count("budget.queries_per_s_max", 1, 1'000'000, FLUVIAL_FIELD(budget.queries_per_s_max),
                "questions of one site about outcomes that are answered in a second; further ones wait");
  declare.count("budget.relayed_queries_per_s_max", 1, 1'000'000, FLUVIAL_FIELD(budget.relayed_queries_per_s_max),
                "as budget.queries_per_s_max, of one aggregator for all sites below it");
}

template <typename S>
void declare_common(Declare<S>& declare) {
  declare.text("data_dir", "path", FLUVIAL_FIELD(data_dir), "the folder of this node's keys, journal and files", true);
  declare.address("metrics_listen", Declare<S>::Port::kAny, FLUVIAL_FIELD(metrics_listen),
                  "where /metrics, /healthz and /readyz are served; auto: 127.0.0.1:9400, or a free port where that is "
                  "taken; off: nowhere; port 0: any free one. metrics.address in data_dir says which",
                  false, true);
  declare.choice("log_level", {"debug", "info", "warn", "error", "off"}, FLUVIAL_FIELD(log_level),
                 "the lowest level that is logged");
  declare.choice("log_format", {"text", "json"}, FLUVIAL_FIELD(log_format),
                 "of the log on standard error, a line an event");
  declare.count("io_threads", 0, 256, FLUVIAL_FIELD(io_threads),
                "threads that serve sessions; 0: one at a site; half as many as there are cores, and 1 to 4, at a "
                "coordinator or an aggregator");
  declare.count("compute_threads", 0, 1024, FLUVIAL_FIELD(compute_threads),
                "threads for arithmetic and disk; 0: one a core");
  declare.choice("core_dumps", {"off", "on"}, FLUVIAL_FIELD(core_dumps),
                 "off: this process, which holds keys, leaves no core dump, and none of its user's other processes may "
                 "look into it (gdb, perf); on: as the system has it");
  declare_session(declare);
}

template <typename S>
void declare_staging(Declare<S>& declare) {
  declare.bytes_or_auto("staging_bytes_max", 0, kTebi, FLUVIAL_FIELD(staging_bytes_max),
                        "memory for updates that wait for their round; beyond it they go to disk. auto: 8 bytes a "
                        "parameter of the run's model, 32 MiB at least");
}

template <typename S>
void declare_enrolled(Declare<S>& declare) {
  declare.address("enrol_address", Declare<S>::Port::kGiven, FLUVIAL_FIELD(enrol_address),
                  "the coordinator's enrolment port, where a certificate that has ended is renewed; empty: where this "
                  "node enrolled, else the coordinator's host and port 7401");
}

template <typename S>
void declare_proxy(Declare<S>& declare) {
  declare.text(
      "proxy", "URL", FLUVIAL_FIELD(proxy),
      "an HTTP proxy (CONNECT) towards coordinator and parent, http://HOST:PORT or "
      "http://USER:PASSWORD@HOST:PORT; empty: the variable https_proxy, except towards this machine; off: none");
  declare.text("no_proxy", "list", FLUVIAL_FIELD(no_proxy),
               "names, addresses and networks that are reached without the proxy; empty: the variable no_proxy");
}

void declare_owner(Declare<EdgeSettings>& declare) {
  declare.text("policy.runs", "globs", FLUVIAL_FIELD(policy.runs),
               "the site's owner: runs whose rounds it takes part in, by name, such as retina-*,digits; empty: all");
  declare.count(
      "policy.cohort_min", 0, 1'000'000, FLUVIAL_FIELD(policy.cohort_min),
      "the site's owner: how many sites a round must ask at least, by the coordinator's signed opening; 0: any");
  declare.hours(
      "policy.hours", FLUVIAL_FIELD(policy.hours),
      "the site's owner: when training may begin, in local time (TZ), such as mon-fri 20:00-07:00; empty: always");
  declare.bytes("policy.upload_bytes_per_s", 0, kTebi, FLUVIAL_FIELD(policy.upload_bytes_per_s),
                "the site's owner: how fast updates are sent, so that the line stays free; 0: as fast as it goes");
}

void declare_certificates(Declare<CoordinatorSettings>& declare) {
  declare.text("authority.certificate", "path", FLUVIAL_FIELD(authority.certificate),
               "of an existing PKI: the certificate (PEM) that issues members' certificates; empty: the coordinator "
               "makes its own authority");
  declare.text("authority.key", "path", FLUVIAL_FIELD(authority.key),
               "the private key of authority.certificate; mode 0600. The data folder keeps a copy");
  declare.text("authority.root", "path", FLUVIAL_FIELD(authority.root),
               "the root above authority.certificate, which members trust");
  declare.quantity("certificate_validity_s", "s", &parse_seconds, 1, 86'400 * 3'650,
                   FLUVIAL_FIELD(certificate_validity_s),
                   "how long a certificate is valid, such as 24h; members renew theirs from half of that on");
  declare.count(
      "certificate_days", 0, 3650, FLUVIAL_FIELD(certificate_days),
      "the same in days, as versions up to 0.2 had it; above 0 it counts, and certificate_validity_s does not");
  declare.quantity("renew_ended_max_s", "s", &parse_seconds, 0, 86'400 * 3'650, FLUVIAL_FIELD(renew_ended_max_s),
                   "how long after its certificate has ended a member may still renew it, such as 30d; then it needs a "
                   "token");
}

std::vector<Setting<CoordinatorSettings>> declare_coordinator() {
  std::vector<Setting<CoordinatorSettings>> settings;
  Declare<CoordinatorSettings> declare(settings);
  using Port = Declare<CoordinatorSettings>::Port;
  declare_common(declare);
  declare.name("federation", FLUVIAL_FIELD(federation), "the federation's name; read when it is founded");
  declare.address("listen", Port::kAny, FLUVIAL_FIELD(listen), "the members' port");
  declare.address("enrol_listen", Port::kAny, FLUVIAL_FIELD(enrol_listen), "the enrolment port");
  declare.host("public_host", FLUVIAL_FIELD(public_host),
               "the host that tokens name and the certificate states; empty: this machine's name");
  declare.text("admin_socket", "path", FLUVIAL_FIELD(admin_socket),
               "the Unix socket of the administrative commands; empty: admin.sock in data_dir");
  declare.text("admin_users", "list", FLUVIAL_FIELD(admin_users),
               "who else may administer: users and @groups of this machine by name or number, such as alice, 1001, "
               "@ops; empty: only root and the coordinator's own user");
  declare.text("admin_readers", "list", FLUVIAL_FIELD(admin_readers),
               "who else may look and change nothing: users and @groups, likewise");
  declare.address_or_off("admin_listen", FLUVIAL_FIELD(admin_listen),
                         "the admin API over the network, for client certificates of the role operator, such as "
                         "0.0.0.0:7402; off: only the socket");
  declare.text("worker_socket", "path", FLUVIAL_FIELD(worker_socket),
               "the Unix socket where evaluation workers attach; empty: worker.sock in data_dir");
  declare_staging(declare);
  declare_budget(declare);
  declare_certificates(declare);
  declare.count(
      "operator_certificate_days", 1, 365, FLUVIAL_FIELD(operator_certificate_days),
      "days an operator's certificate is valid; it is renewed when it is used in the second half of its life");
  declare.quantity("token_ttl_s", "s", &parse_seconds, 1, 86'400 * 30, FLUVIAL_FIELD(token_ttl_s),
                   "how long an enrolment token is valid when the command does not say");
  declare.count(
      "enrol_per_minute_max", 1, 1'000'000, FLUVIAL_FIELD(enrol_per_minute_max),
      "certificates that are issued a minute for tokens, and as many again for renewals; further requests are "
      "refused");
  declare.count(
      "wrong_tokens_per_minute_max", 1, 1'000'000, FLUVIAL_FIELD(wrong_tokens_per_minute_max),
      "wrong tokens a minute of one IPv4 address or one /64 of IPv6 that are answered and logged one by one; a right "
      "token is taken beyond them, too");
  declare.milliseconds("failover_after_ms", 1, kDayMs, FLUVIAL_FIELD(failover_after_ms),
                       "when an aggregator has been away for this long, its children get another parent");
  declare.milliseconds("unreachable_for_ms", 1, kDayMs, FLUVIAL_FIELD(unreachable_for_ms),
                       "how long a child that could not reach a connected aggregator keeps a substitute parent");
  declare.milliseconds("return_after_ms", 1, kDayMs, FLUVIAL_FIELD(return_after_ms),
                       "when a nearer aggregator has been up for this long, children return to it between rounds");
  declare.count("keep_rounds", 0, kMany, FLUVIAL_FIELD(keep_rounds),
                "how many committed rounds the journal keeps, the newest of all runs together; 0: all. The last round "
                "of each run and those whose models are kept stay as well");
  declare.count("keep_rounds_days", 0, kDaysMax, FLUVIAL_FIELD(keep_rounds_days),
                "rounds committed more than this many days ago are pruned as well; 0: none is pruned for its age");
  declare.count("keep_tokens_days", 0, kDaysMax, FLUVIAL_FIELD(keep_tokens_days),
                "how long used, revoked or expired enrolment tokens are kept, at least as long as a certificate is "
                "valid; 0: for good");
  declare.count("keep_audit_days", 0, kDaysMax, FLUVIAL_FIELD(keep_audit_days),
                "how long entries of the audit log are kept; 0: for good");
  declare.bytes("upload_bytes_max", 1 << 20, kTebi, FLUVIAL_FIELD(upload_bytes_max),
                "what the models that one operator sends from another machine, for runs to begin with, may have "
                "together; the disk may have less room");
  return settings;
}

std::vector<Setting<AggregatorSettings>> declare_aggregator() {
  std::vector<Setting<AggregatorSettings>> settings;
  Declare<AggregatorSettings> declare(settings);
  using Port = Declare<AggregatorSettings>::Port;
  declare_common(declare);
  declare.address("listen", Port::kAny, FLUVIAL_FIELD(listen),
                  "the port for its children; if only advertise is given, the port of advertise");
  declare.address("advertise", Port::kAny, FLUVIAL_FIELD(advertise),
                  "the address that its children connect to; port 0: the port that it listens on", true);
  declare.address("coordinator", Port::kGiven, FLUVIAL_FIELD(coordinator), "the coordinator's members' port", true);
  declare_enrolled(declare);
  declare_proxy(declare);
  declare_staging(declare);
  declare_budget(declare);
  declare.milliseconds("parentless_max_ms", 100, kDayMs, FLUVIAL_FIELD(parentless_max_ms),
                       "after this long without a parent it sends its children to the coordinator for another one");
  return settings;
}

std::vector<Setting<EdgeSettings>> declare_edge() {
  std::vector<Setting<EdgeSettings>> settings;
  Declare<EdgeSettings> declare(settings);
  using Port = Declare<EdgeSettings>::Port;
  declare_common(declare);
  declare.address("coordinator", Port::kGiven, FLUVIAL_FIELD(coordinator), "the coordinator's members' port", true);
  declare_enrolled(declare);
  declare_proxy(declare);
  declare.text("worker_socket", "path", FLUVIAL_FIELD(worker_socket),
               "the Unix socket where training workers attach; empty: worker.sock in data_dir");
  declare.count("workers", 1, 64, FLUVIAL_FIELD(workers), "workers that a round waits for");
  declare.choice("reduction", {"auto", "direct", "ring", "halving_doubling", "tree", "two_level"},
                 FLUVIAL_FIELD(reduction),
                 "how the workers' results are added up; auto: the fastest, measured at the start");
  declare.gpus(
      "gpus", FLUVIAL_FIELD(gpus),
      "the GPUs on which workers may leave their results, and which then make the updates; auto: all usable CUDA "
      "devices");
  declare.milliseconds("worker_attach_deadline_ms", 1, 7 * kDayMs, FLUVIAL_FIELD(worker_attach_deadline_ms),
                       "how long a round waits until its workers are attached and free");
  declare.milliseconds("worker_task_deadline_ms", 1, 30 * kDayMs, FLUVIAL_FIELD(worker_task_deadline_ms),
                       "how long a worker may take for a task before it counts as missing; a plan may ask for less");
  declare.milliseconds(
      "model_deadline_ms", 1, kDayMs, FLUVIAL_FIELD(model_deadline_ms),
      "how long nothing may arrive of a run's last model before workers are told that the run has ended without it");
  declare.milliseconds("outcome_interval_ms", 100, kDayMs, FLUVIAL_FIELD(outcome_interval_ms),
                       "how often the agent asks for the outcome of an unresolved submission");
  declare_owner(declare);
  return settings;
}

}  // namespace

template <>
const std::vector<Setting<CoordinatorSettings>>& declaration() {
  static const std::vector<Setting<CoordinatorSettings>> settings = declare_coordinator();
  return settings;
}
template <>
const std::vector<Setting<AggregatorSettings>>& declaration() {
  static const std::vector<Setting<AggregatorSettings>> settings = declare_aggregator();
  return settings;
}
template <>
const std::vector<Setting<EdgeSettings>>& declaration() {
  static const std::vector<Setting<EdgeSettings>> settings = declare_edge();
  return settings;
}

std::size_t common_settings_count() {
  std::vector<Setting<EdgeSettings>> settings;
  Declare<EdgeSettings> declare(settings);
  declare_common(declare);
  return settings.size();
}

std::optional<Conflict> find_conflict(const CommonSettings& settings) {
  const SessionLimits& session = settings.session;
  if (session.heartbeat_timeout_ms <= session.heartbeat_interval_ms) {
    return Conflict{
        "session.heartbeat_timeout_ms", std::to_string(session.heartbeat_timeout_ms),
        "more than session.heartbeat_interval_ms (" + std::to_string(session.heartbeat_interval_ms) + " ms)"};
  }
  if (session.reconnect_delay_max_ms < session.reconnect_delay_min_ms) {
    return Conflict{
        "session.reconnect_delay_max_ms", std::to_string(session.reconnect_delay_max_ms),
        "at least session.reconnect_delay_min_ms (" + std::to_string(session.reconnect_delay_min_ms) + " ms)"};
  }
  return std::nullopt;
}

namespace {

// All of a PKI's files, or none.
std::optional<Conflict> find_missing(const AuthoritySettings& files) {
  const std::pair<const char*, const std::string*> all[] = {
      {"authority.certificate", &files.certificate}, {"authority.key", &files.key}, {"authority.root", &files.root}};
  const std::pair<const char*, const std::string*>* given = nullptr;
  bool is_complete = true;
  for (const auto& file : all) {
    if (file.second->empty()) is_complete = false;
    if (!file.second->empty()) given = &file;
  }
  if (given == nullptr || is_complete) return std::nullopt;
  return Conflict{given->first, *given->second,
                  "authority.certificate, authority.key and authority.root together: give all three, or none"};
}

std::optional<Conflict> find_long(const char* key, const std::string& socket) {
  constexpr std::size_t kSocketPathCharsMax = sizeof(sockaddr_un::sun_path) - 1;
  if (socket.size() <= kSocketPathCharsMax) return std::nullopt;
  return Conflict{key, socket,
                  "at most " + std::to_string(kSocketPathCharsMax) +
                      " characters, as a socket's path has them: give a shorter one, or a shorter data_dir"};
}

}  // namespace

std::optional<Conflict> find_conflict(const CoordinatorSettings& settings) {
  if (auto found = find_conflict(static_cast<const CommonSettings&>(settings))) return found;
  if (auto found = find_missing(settings.authority)) return found;
  if (auto found = find_long("admin_socket", settings.admin_socket)) return found;
  return find_long("worker_socket", settings.worker_socket);
}

std::optional<Conflict> find_conflict(const EdgeSettings& settings) {
  if (auto found = find_conflict(static_cast<const CommonSettings&>(settings))) return found;
  return find_long("worker_socket", settings.worker_socket);
}

std::string flag_of(const std::string& key) {
  std::string flag = "--" + key;
  std::replace_if(flag.begin(), flag.end(), [](char c) { return c == '.' || c == '_'; }, '-');
  return flag;
}

std::string env_of(const std::string& key) {
  std::string name = "FLUVIAL_" + key;
  std::replace(name.begin(), name.end(), '.', '_');
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return name;
}

}  // namespace fluvial::config

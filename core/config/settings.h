// The settings of each role: plain structs, validated, not changed after. Each field is declared once (declaration.cc)
// with its key, unit, default and meaning; flags, environment, TOML file and docs/operations/settings.md follow from
// it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"

namespace fluvial::config {

// Of every session to a peer (core/net).
struct SessionLimits {
  std::uint64_t handshake_deadline_ms = 5'000;
  std::uint64_t frame_deadline_ms = 30'000;
  std::uint64_t min_rate_bytes_per_s = 16'384;
  std::uint64_t heartbeat_interval_ms = 5'000;
  std::uint64_t heartbeat_timeout_ms = 20'000;
  std::uint64_t outbox_bytes_max = 16 << 20;
  std::uint64_t sessions_max = 20'000;
  std::uint64_t reconnect_delay_min_ms = 100;
  std::uint64_t reconnect_delay_max_ms = 10'000;
  std::uint64_t drain_deadline_ms = 5'000;
  std::uint64_t key_updates_max = 32;
  std::uint64_t past_certificate_max_ms = 3'600'000;
  bool operator==(const SessionLimits&) const = default;
};

// What a parent lets others take of it: strangers by their address, members by their identity, all of them together
// (core/net). A hundred sites behind one address fit into the defaults.
struct Budgets {
  std::uint64_t strangers_max = 1'024;
  std::uint64_t strangers_per_address_max = 256;
  std::uint64_t stranger_bytes_max = 64 << 10;
  std::uint64_t sessions_per_member_max = 8;
  std::uint64_t payload_bytes_max = 32 << 20;
  std::uint64_t payload_bytes_per_member_max = 16 << 20;
  std::uint64_t queries_per_s_max = 20;
  std::uint64_t relayed_queries_per_s_max = 2'000;
  bool operator==(const Budgets&) const = default;
};

// 127.0.0.1:9400, or any free port when another process has that one.
inline constexpr const char* kMetricsAuto = "auto";
inline constexpr const char* kMetricsFirst = "127.0.0.1:9400";

// The settings of every process.
struct CommonSettings {
  std::string data_dir;                       // required
  std::string metrics_listen = kMetricsAuto;  // or host:port; "off": none; port 0: any free one
  std::string log_level = "info";             // debug, info, warn, error, off
  std::string log_format = "text";            // text, json
  std::uint64_t io_threads = 0;               // 0: by role and cores (core/tree/runtime.h)
  std::uint64_t compute_threads = 0;          // 0: one a core
  std::string core_dumps = "off";             // or "on"
  SessionLimits session;
  Budgets budget;  // of coordinators and aggregators
  bool operator==(const CommonSettings&) const = default;
};

// Of an existing PKI: all three files, or none.
struct AuthoritySettings {
  std::string certificate;
  std::string key;
  std::string root;
  bool operator==(const AuthoritySettings&) const = default;
};

struct CoordinatorSettings : CommonSettings {
  std::string federation = "fluvial";  // its name; used when it is founded
  std::string listen = "0.0.0.0:7400";
  std::string enrol_listen = "0.0.0.0:7401";
  std::string public_host;           // what tokens and certificates name; empty: this machine's host name
  std::string admin_socket;          // default: admin.sock in data_dir
  std::string admin_users;           // beside its own user and root: "alice, 1001, @ops"
  std::string admin_readers;         // likewise, and these may only look
  std::string admin_listen = "off";  // or host:port: the admin API for operators' certificates
  std::string worker_socket;         // default: worker.sock in data_dir; workers that evaluate attach here
  AuthoritySettings authority;
  std::optional<std::uint64_t> staging_bytes_max;  // none: by the model of the run (core/store/staging.h)
  std::uint64_t certificate_validity_s = 86'400;
  std::uint64_t certificate_days = 0;  // what 0.2 had in place of it: counts where it is not 0
  std::uint64_t renew_ended_max_s = 30 * 86'400;
  std::uint64_t operator_certificate_days = 30;
  std::uint64_t token_ttl_s = 3'600;
  std::uint64_t enrol_per_minute_max = 600;
  std::uint64_t wrong_tokens_per_minute_max = 30;
  std::uint64_t failover_after_ms = 5'000;
  std::uint64_t unreachable_for_ms = 60'000;
  std::uint64_t return_after_ms = 30'000;
  std::uint64_t keep_rounds = 100'000;  // of all runs together; 0: all
  std::uint64_t keep_rounds_days = 0;   // 0: however old
  std::uint64_t keep_tokens_days = 90;  // after the end of their use; 0: for ever
  std::uint64_t keep_audit_days = 0;    // 0: for ever
  std::uint64_t upload_bytes_max = std::uint64_t{1} << 40;
  bool operator==(const CoordinatorSettings&) const = default;
  std::chrono::seconds certificate_validity() const;
};

struct AggregatorSettings : CommonSettings {
  std::string listen = "0.0.0.0:7410";
  std::string advertise;      // host:port for its children; required
  std::string coordinator;    // host:port; required
  std::string proxy;          // http://[user:password@]host:port, "off" or empty; a secret where it holds a password
  std::string no_proxy;       // names that are reached without the proxy
  std::string enrol_address;  // host:port; empty: where it enrolled
  std::optional<std::uint64_t> staging_bytes_max;  // as a coordinator's
  std::uint64_t parentless_max_ms = 30'000;
  bool operator==(const AggregatorSettings&) const = default;
};

// What a site's owner allows (edge/logic/owner_policy.h).
struct OwnerSettings {
  std::string runs;                      // globs, separated by commas; empty: any run
  std::uint64_t cohort_min = 0;          // sites that a round asks; 0: any number
  std::string hours;                     // as WeekHours::parse() reads them; empty: always
  std::uint64_t upload_bytes_per_s = 0;  // 0: as fast as it goes
  bool operator==(const OwnerSettings&) const = default;
};

struct EdgeSettings : CommonSettings {
  std::string coordinator;  // host:port; required
  std::string proxy;        // as an aggregator's
  std::string no_proxy;
  std::string enrol_address;  // as an aggregator's
  std::string worker_socket;  // default: worker.sock in data_dir
  std::uint64_t workers = 1;
  std::string reduction = "auto";  // of the workers' results, or an algorithm by its name
  std::string gpus = "auto";       // or "none", or devices as parse_gpus() reads them
  std::uint64_t worker_attach_deadline_ms = 60'000;
  std::uint64_t worker_task_deadline_ms = 3'600'000;
  std::uint64_t model_deadline_ms = 30'000;
  std::uint64_t outcome_interval_ms = 30'000;
  OwnerSettings policy;
  bool operator==(const EdgeSettings&) const = default;
};

// kInvalidArgument naming the key, its value and what was expected.
Status check_settings(const CoordinatorSettings& settings);
Status check_settings(const AggregatorSettings& settings);
Status check_settings(const EdgeSettings& settings);

// "256MiB", "1.5 GiB", "64kB", "4096" -> bytes; "30s", "500ms", "10m", "2h", "1d" -> the unit asked for.
// Plain numbers are in the setting's own unit.
Result<std::uint64_t> parse_bytes(std::string_view text);
Result<std::uint64_t> parse_milliseconds(std::string_view text);
Result<std::uint64_t> parse_seconds(std::string_view text);

// "cuda:0, cuda:1" -> {"cuda:0", "cuda:1"}: at least one device, each once. Does not check that the devices exist.
// ("emulated" is a device in programs for tests.)
Result<std::vector<std::string>> parse_gpus(std::string_view text);

struct HostPort {
  std::string host;
  std::uint16_t port = 0;
  bool operator==(const HostPort&) const = default;
};
// "host:port", "[::1]:7400", ":7400" (every IPv4 address, 0.0.0.0).
Result<HostPort> parse_host_port(std::string_view text);
std::string format_host_port(const HostPort& address);
// A DNS name, or an IPv4 or IPv6 address without brackets.
bool is_bare_host(std::string_view text);

}  // namespace fluvial::config

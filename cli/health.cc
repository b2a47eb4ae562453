// fluvial health: is the process on this machine well? For people, containers and supervisors: it needs no other tool.
#include "cli/health.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>

#include "cli/admin_client.h"
#include "core/base/clock.h"
#include "core/config/settings.h"
#include "core/identity/authority.h"
#include "core/identity/verify.h"
#include "core/store/file_system.h"
#include "core/tree/process.h"

namespace fluvial::cli {
namespace {

struct HealthOptions : AdminOptions {
  std::string metrics_listen;  // empty: what the process wrote into its data folder
  bool live = false;
  std::string timeout = "5s";
};

constexpr std::uint64_t kAddressBytesMax = 300;

struct Asked {
  std::string where;
  Status verdict;
};

Error as_error(const net::HttpReply& reply) {
  std::string text = reply.body.substr(0, reply.body.find('\n'));
  if (text.empty()) text = fmt::format("HTTP status {}", reply.status);
  return {Code::kFailedPrecondition, std::move(text)};
}

Asked ask_node(std::string where, const net::HttpAddress& address, const char* target, Duration deadline) {
  const auto reply = net::http_request(address, "GET", target, "", deadline);
  if (!reply.ok()) return {std::move(where), reply.error()};
  return {std::move(where), reply->status == 200 ? Status() : Status(as_error(*reply))};
}

// Where the process listens on every address, it is asked over the loopback device.
config::HostPort nearby(config::HostPort at) {
  if (at.host == "0.0.0.0") at.host = "127.0.0.1";
  if (at.host == "::") at.host = "::1";
  return at;
}

Asked ask_socket(const std::string& socket, Duration deadline) {
  return ask_node(socket + " /v1/status", net::UnixAddress{socket}, "/v1/status", deadline);
}

Result<Asked> ask_listener(const std::string& listen, const char* target, Duration deadline) {
  const auto parsed = config::parse_host_port(listen);
  if (!parsed.ok() || parsed->port == 0) {
    return Error{
        Code::kInvalidArgument,
        fmt::format("--metrics-listen {}: expected off, auto, or host:port with the port of the running process",
                    listen)};
  }
  const config::HostPort at = nearby(*parsed);
  return ask_node(fmt::format("http://{}{}", config::format_host_port(at), target), net::TcpAddress{at.host, at.port},
                  target, deadline);
}

// Of the process that a data folder is of, what it says of itself in /status.
struct Owner {
  std::string_view role;
  std::string name;  // of a member
};

// None: the folder does not say.
std::optional<Owner> owner_of(const std::string& folder) {
  std::error_code error;
  if (std::filesystem::exists(folder + "/ca", error)) return Owner{role_name(Role::kCoordinator), ""};
  const auto chain = identity::Certificate::load_chain(folder + "/identity/cert.pem");
  if (!chain.ok()) return std::nullopt;
  const auto member = identity::identity_of(chain->front());
  if (!member.ok()) return std::nullopt;
  return Owner{role_name(member->role), member->name};
}

// What a process left in its folder outlives it, and another one may listen there by now.
Status check_owner(const Owner& owner, const net::HttpAddress& address, const std::string& where, Duration deadline) {
  const auto reply = net::http_request(address, "GET", "/status", "", deadline);
  if (!reply.ok()) return {};  // nobody there, or busy
  const auto status = parse_json(reply->body, "the process's answer");
  const bool is_told = reply->status == 200 && status.ok() && status->is_object();
  if (is_told && text_member(*status, "role") == owner.role && text_member(*status, "name") == owner.name) return {};
  return Error{Code::kFailedPrecondition, where + " is another node's: the process of this folder does not run"};
}

// At the address that the process of the folder noted.
Result<Asked> ask_noted(const std::string& folder, const std::string& listen, const char* target, Duration deadline) {
  const SystemClock clock;
  const TimePoint end = clock.now() + deadline;
  FLUVIAL_ASSIGN(Asked asked, ask_listener(listen, target, deadline));
  const auto owner = owner_of(folder);
  const config::HostPort at = nearby(config::parse_host_port(listen).value());
  if (!owner || clock.now() >= end) return asked;
  const net::TcpAddress address{at.host, at.port};
  const Status owned = check_owner(*owner, address, config::format_host_port(at), end - clock.now());
  if (!owned.ok()) asked.verdict = owned;
  return asked;
}

// By what the process left in its data folder: where it listens, or else a coordinator's socket.
Result<Asked> ask_folder(const std::string& folder, const char* target, Duration deadline) {
  store::PosixFileSystem files;
  const auto written = store::read_file(files, folder + "/" + tree::kMetricsAddressFile, kAddressBytesMax);
  if (written.ok()) {
    const std::string_view text = as_text(written->span());
    return ask_noted(folder, std::string(text.substr(0, text.find('\n'))), target, deadline);
  }
  std::error_code error;
  const std::string socket = folder + "/admin.sock";
  if (std::filesystem::exists(socket, error)) return ask_socket(socket, deadline);
  return Asked{folder, Error{Code::kNotFound,
                             "no process has been started with this data folder, or it may not be "
                             "asked (metrics_listen is off)"}};
}

Result<Asked> ask_node(const HealthOptions& options) {
  const Duration deadline = std::chrono::milliseconds(config::parse_milliseconds(options.timeout).value());
  const char* target = options.live ? "/healthz" : "/readyz";
  if (!options.admin_socket.empty()) return ask_socket(options.admin_socket, deadline);
  if (options.metrics_listen == "off") {
    const std::string socket = options.data_dir + "/admin.sock";
    std::error_code error;
    if (std::filesystem::exists(socket, error)) return ask_socket(socket, deadline);
    return Error{Code::kInvalidArgument,
                 fmt::format("metrics_listen is off, and there is no {}: nothing can be asked", socket)};
  }
  if (!options.metrics_listen.empty() && options.metrics_listen != config::kMetricsAuto) {
    return ask_listener(options.metrics_listen, target, deadline);
  }
  return ask_folder(options.data_dir, target, deadline);
}

int run_health(const Io& io, const HealthOptions& options) {
  const auto asked = ask_node(options);
  if (!asked.ok()) return fail(io, "health", asked.error(), kUsage);
  const bool healthy = asked->verdict.ok();
  const std::string reason = healthy ? "" : asked->verdict.error().message;
  if (options.json) {
    io.print(pretty(json::object{{"healthy", healthy}, {"asked", asked->where}, {"reason", reason}}));
    return healthy ? kDone : kFailed;
  }
  if (!healthy) return fail(io, "health", {Code::kUnavailable, fmt::format("{}: {}", asked->where, reason)});
  io.print(fmt::format("healthy: {}\n", asked->where));
  return kDone;
}

}  // namespace

void add_health_command(CLI::App& app, Commands& commands) {
  const auto options = std::make_shared<HealthOptions>();
  CLI::App* health = app.add_subcommand("health", "is the process on this machine well? Status 0: yes, 1: no");
  health
      ->add_option("--metrics-listen", options->metrics_listen,
                   "its metrics_listen, as it was started with (default: what it wrote into its data folder)")
      ->type_name("HOST:PORT")
      ->envname("FLUVIAL_METRICS_LISTEN");
  health->add_flag("--live", options->live,
                   "only whether it answers; else also whether it is ready: a coordinator's disk, a member's parent");
  health->add_option("--timeout", options->timeout, "how long it may take to answer")
      ->type_name("TIME")
      ->capture_default_str()
      ->check(checked("a duration such as 500ms or 5s", [](const std::string& text) -> Status {
        const auto limit = config::parse_milliseconds(text);
        return limit.ok() ? Status() : Status(limit.error());
      }));
  add_socket_options(*health, *options, "the node's data folder");
  health->add_flag("--json", options->json, "print {healthy, asked, reason} as JSON");
  health->footer(
      "With --admin-socket, or where metrics_listen is off, a coordinator is asked over its socket.\n"
      "Example:\n  fluvial health --data-dir /var/lib/fluvial-site");
  health->callback(
      [&commands, options] { commands.chosen = [&commands, options] { return run_health(commands.io, *options); }; });
}

}  // namespace fluvial::cli

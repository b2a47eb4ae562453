// fluvial coordinator, aggregator and edge: the processes of a federation.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>

#include "aggregator/service/aggregator.h"
#include "cli/command.h"
#include "cli/enroll.h"
#include "cli/open_files.h"
#include "cli/proxy.h"
#include "cli/site_folders.h"
#include "coordinator/service/coordinator.h"
#include "coordinator/service/preflight.h"
#include "coordinator/service/restored.h"
#include "core/identity/key_guard.h"
#include "core/round/history.h"
#include "core/telemetry/log.h"
#include "edge/service/edge.h"

namespace fluvial::cli {
namespace {

using OnReady = std::function<void(const std::string&)>;

// Writes the line that a supervisor waits for, then closes the descriptor.
void announce(int descriptor, const std::string& ready) {
  const std::string line = ready + "\n";
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t written = ::write(descriptor, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;  // nobody waits any more
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  ::close(descriptor);
}

template <typename Settings>
using Run = std::function<Status(Settings, store::FileSystem&, telemetry::Logger, OnReady)>;

template <typename Settings>
struct RoleOptions {
  config::SettingsReader<Settings> reader;
  int ready_fd = -1;
  EnrollFirst enroll_first;  // of members
  std::string sites;         // of the edge: the folder of many of them
  const CLI::App* app = nullptr;
};

template <typename Settings>
constexpr Role kRole = Role::kCoordinator;
template <>
constexpr Role kRole<config::AggregatorSettings> = Role::kAggregator;
template <>
constexpr Role kRole<config::EdgeSettings> = Role::kSite;

// What flag or environment say of a setting, unchecked: there may be no file yet. Empty: neither does.
std::string given(const CLI::App& app, Role role, const std::string& key, const config::Environment& environment) {
  for (const config::SettingInfo& info : config::describe_settings(role)) {
    if (info.key != key) continue;
    const CLI::Option* flag = app.get_option(info.flag);
    return flag->count() > 0 ? flag->as<std::string>() : environment(info.env).value_or("");
  }
  return "";
}

// Says of each place in `error` that a variable names, and nobody typed, which variable that is.
Error with_variables(Error error, const CLI::App& app, Role role, const config::Environment& environment) {
  std::string named;
  for (const config::SettingInfo& info : config::describe_settings(role)) {
    if ((info.unit != "path" && info.unit != "host:port") || app.get_option(info.flag)->count() > 0) continue;
    std::string place = environment(info.env).value_or("");
    place.erase(place.find_last_not_of('/') + 1);
    if (place.empty()) continue;
    if (place.find_first_of("/:") == std::string::npos) place += '/';  // no word that a message may have anyway
    if (error.message.find(place) != std::string::npos && error.message.find(info.env) == std::string::npos) {
      named += fmt::format("{}{} is from {}", named.empty() ? "" : ", ", info.key, info.env);
    }
  }
  if (!named.empty()) error.message += fmt::format(" ({})", named);
  return error;
}

// Of settings that are missing: where enrolment has written them.
Error with_file_left(Error error, const CLI::App& app, Role role, const config::Environment& environment) {
  if (app.count("--config") > 0 || !environment("FLUVIAL_CONFIG").value_or("").empty()) return error;
  const auto infos = config::describe_settings(role);
  const bool complete = std::ranges::all_of(infos, [&](const config::SettingInfo& info) {
    return info.default_value != "(required)" || !given(app, role, info.key, environment).empty();
  });
  const std::string folder = given(app, role, "data_dir", environment);
  const std::string file = fmt::format("{}/{}.toml", folder, app.get_name());
  std::error_code unreadable;
  if (complete || folder.empty() || !std::filesystem::exists(file, unreadable)) return error;
  error.message += fmt::format("; {} is there: give --config {}", file, file);
  return error;
}

// Enrols where that is asked for and not done yet. The environment with which the settings are read: the file that
// enrolment wrote is theirs unless another is named.
template <typename Settings>
Result<config::Environment> enroll_if_new(const Commands& commands, const RoleOptions<Settings>& options) {
  if (!options.enroll_first.wanted) return commands.environment;
  constexpr Role role = kRole<Settings>;
  const auto of = [&](const std::string& key) { return given(*options.app, role, key, commands.environment); };
  const std::string level_name = of("log_level");
  const std::string format_name = of("log_format");
  FLUVIAL_ASSIGN(const auto level, telemetry::level_from_name(level_name.empty() ? "info" : level_name));
  FLUVIAL_ASSIGN(const auto format, telemetry::log_format_from_name(format_name.empty() ? "text" : format_name));
  FLUVIAL_ASSIGN(const std::string config,
                 enroll_first(options.enroll_first, role, commands.environment, of,
                              telemetry::make_stderr_logger(level, format).as({{"role", role_name(role)}})));
  return config::Environment([config, outer = commands.environment](const std::string& name) {
    std::optional<std::string> value = outer(name);
    if (name == "FLUVIAL_CONFIG" && value.value_or("").empty()) value = config;
    return value;
  });
}

// Of a process whose settings are read.
template <typename Settings>
int run_with(const Commands& commands, const std::string& name, const RoleOptions<Settings>& options, Settings settings,
             const Run<Settings>& run) {
  if (settings.core_dumps == "on") identity::allow_dumps();
  if constexpr (kRole<Settings> != Role::kCoordinator) {
    ProxyChoice way_out = choose_proxy(settings.proxy, settings.no_proxy, commands.environment);
    settings.proxy = std::move(way_out.url);
    settings.no_proxy = std::move(way_out.no_proxy);
  }
  const auto level = telemetry::level_from_name(settings.log_level);
  const auto format = telemetry::log_format_from_name(settings.log_format);
  if (!level.ok() || !format.ok()) return fail(commands.io, name, level.ok() ? format.error() : level.error(), kUsage);
  OnReady on_ready = [descriptor = options.ready_fd](const std::string& ready) {
    if (descriptor >= 0) announce(descriptor, ready);
  };
  const telemetry::Logger log = telemetry::make_stderr_logger(*level, *format);
  const Status ended = run(std::move(settings), commands.files, log, std::move(on_ready));
  if (ended.ok()) return kDone;
  Error error = ended.error();
  if (options.sites.empty()) {
    error = with_variables(std::move(error), *options.app, kRole<Settings>, commands.environment);
  }
  if (*format != telemetry::LogFormat::kJson) return fail(commands.io, name, error);
  log.as({{"role", role_name(kRole<Settings>)}})  // a log store takes nothing else
      .error("it cannot go on; the process ends", {{"reason", error.to_string()}});
  return kFailed;
}

// What only this machine can tell of the settings: bad ones end as those do that cannot be read.
Status check_here(const config::CommonSettings&, store::FileSystem&) { return {}; }
Status check_here(const config::CoordinatorSettings& settings, store::FileSystem& files) {
  return coordinator::check_place(settings, files);
}

template <typename Settings>
int run_role(const Commands& commands, const std::string& name, const RoleOptions<Settings>& options,
             const Run<Settings>& run) {
  identity::guard_keys();
  raise_open_files();
  const auto environment = enroll_if_new(commands, options);
  if (!environment.ok()) {
    const Error error = with_variables(environment.error(), *options.app, kRole<Settings>, commands.environment);
    return fail(commands.io, name, error, error.code == Code::kInvalidArgument ? kUsage : kFailed);
  }
  auto settings = options.reader.read(*environment);
  if (!settings.ok()) {
    return fail(commands.io, name, with_file_left(settings.error(), *options.app, kRole<Settings>, *environment),
                kUsage);
  }
  if (const Status placed = check_here(*settings, commands.files); !placed.ok()) {
    const Error error = with_variables(placed.error(), *options.app, kRole<Settings>, *environment);
    return fail(commands.io, name, error, error.code == Code::kInvalidArgument ? kUsage : kFailed);
  }
  return run_with(commands, name, options, std::move(*settings), run);
}

int run_many_sites(const Commands& commands, const std::string& name,
                   const RoleOptions<config::EdgeSettings>& options) {
  identity::guard_keys();
  raise_open_files();
  auto sites = read_site_folders(options.sites, options.reader, commands.environment, commands.files);
  if (!sites.ok()) return fail(commands.io, name, sites.error(), kUsage);
  const auto run = [&](config::EdgeSettings first, store::FileSystem& files, telemetry::Logger log, OnReady on_ready) {
    sites->front() = std::move(first);
    return edge::run_sites(std::move(*sites), options.sites, files, std::move(log), std::move(on_ready));
  };
  return run_with<config::EdgeSettings>(commands, name, options, sites->front(), run);
}

void declare_sites(CLI::App& edge, std::string& folder) {
  CLI::Option* sites = edge.add_option("--sites", folder,
                                       "many sites in one process: each folder in FOLDER into which fluvial enroll "
                                       "wrote an edge.toml; other flags are for all of them");
  sites->type_name("FOLDER");
  for (const char* of_one : {"--config", "--data-dir", "--worker-socket", "--enroll"}) {
    sites->excludes(edge.get_option(of_one));
  }
}

template <typename Settings>
CLI::App* declare_role(CLI::App& app, Commands& commands, const std::string& name, const std::string& help,
                       Run<Settings> run) {
  const auto options = std::make_shared<RoleOptions<Settings>>();
  CLI::App* role = app.add_subcommand(name, help);
  options->reader.declare(*role);
  options->app = role;
  role->add_option("--ready-fd", options->ready_fd,
                   "write one line of JSON (ports, sockets, pid) to this inherited descriptor when ready")
      ->type_name("N")
      ->check(whole_number(3, 1'000'000));
  if (kRole<Settings> != Role::kCoordinator) add_enroll_first_options(*role, options->enroll_first);
  if constexpr (kRole<Settings> == Role::kSite) declare_sites(*role, options->sites);
  role->callback([&commands, name, options, run] {
    commands.chosen = [&commands, name, options, run] {
      if constexpr (kRole<Settings> == Role::kSite) {
        if (!options->sites.empty()) return run_many_sites(commands, name, *options);
      }
      return run_role(commands, name, *options, run);
    };
  });
  return role;
}

}  // namespace

namespace {

struct Restored {
  bool wanted = false;
  std::uint64_t above = 0;
};

void add_coordinator(CLI::App& app, Commands& commands) {
  const auto restored = std::make_shared<Restored>();
  const auto run = [restored](config::CoordinatorSettings settings, store::FileSystem& files, telemetry::Logger log,
                              OnReady on_ready) {
    if (restored->wanted) return coordinator::mark_restored(settings, files, Epoch(restored->above), log);
    return coordinator::run_coordinator(std::move(settings), files, std::move(log), std::move(on_ready));
  };
  CLI::App* role = declare_role<config::CoordinatorSettings>(
      app, commands, "coordinator", "the root: admits members, schedules rounds, holds the model", run);
  role->footer(
      "Example:\n  fluvial coordinator --data-dir /var/lib/fluvial --public-host fl.example.org\n"
      "It founds the federation on its first start. SIGTERM drains, then stops.");
  CLI::Option* flag = role->add_flag("--restored", restored->wanted,
                                     "the folder was restored from a backup: note that in it, and end. Once, before "
                                     "the coordinator is started again");
  role->add_option("--above", restored->above, "with --restored: begin above this epoch, which a member has named")
      ->type_name("EPOCH")
      ->check(whole_number(1, round::kClockEpochMax.value()))
      ->needs(flag);
}

}  // namespace

void add_role_commands(CLI::App& app, Commands& commands) {
  add_coordinator(app, commands);
  declare_role<config::AggregatorSettings>(
      app, commands, "aggregator", "an inner node: sums its region's updates exactly", aggregator::run_aggregator)
      ->footer(
          "Example (after fluvial enroll):\n  fluvial aggregator --config /var/lib/fluvial/aggregator.toml\n"
          "or, for the first start and every other:\n"
          "  fluvial aggregator --enroll --token-file token.txt --data-dir /var/lib/fluvial "
          "--advertise HOST:7410");
  declare_role<config::EdgeSettings>(app, commands, "edge",
                                     "a site's agent: workers attach to it, it speaks for the site", edge::run_edge)
      ->footer(
          "Example (after fluvial enroll):\n  fluvial edge --config /var/lib/fluvial/edge.toml\n"
          "or, for the first start and every other:\n"
          "  fluvial edge --enroll --token-file token.txt --data-dir /var/lib/fluvial\n"
          "or, for many sites on one machine, each enrolled into a folder of its own:\n"
          "  fluvial edge --sites /var/lib/fluvial-sites");
}

}  // namespace fluvial::cli

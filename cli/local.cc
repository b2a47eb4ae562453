// `fluvial local`: a whole federation on this machine that stays until it is told to go, for people's own tests.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <boost/json/serialize.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/json.h"
#include "cli/local_federation.h"
#include "cli/process.h"
#include "cli/supervisor.h"
#include "cli/work_folder.h"
#include "core/base/printable.h"

namespace fluvial::cli {
namespace {

constexpr std::chrono::milliseconds kLookInterval{200};
constexpr std::uint64_t kSitesMax = 2'000;
constexpr std::uint64_t kProcessesMax = 30;      // of one site each, unless asked for
constexpr std::uint64_t kSitesPerProcess = 250;  // of more than that

struct LocalOptions {
  FederationShape shape{.aggregators = 0, .sites_per_process = 0};
  std::uint64_t workers = 1;
  std::vector<std::string> settings;  // ROLE.KEY=VALUE
  std::string work_dir;
  bool until_eof = false;
  bool json = false;
};

json::object description(const LocalFederation& federation, const WorkFolder& folder) {
  json::array sites;
  for (const LocalSite& site : federation.sites()) {
    sites.push_back(
        json::object{{"name", site.name}, {"worker_socket", site.worker_socket}, {"metrics_port", site.metrics_port}});
  }
  return {{"admin_socket", federation.admin().place()},
          {"evaluator_socket", federation.evaluator_socket()},
          {"metrics_port", federation.coordinator_metrics_port()},
          {"folder", folder.path()},
          {"sites", std::move(sites)}};
}

std::string instructions(const LocalFederation& federation) {
  std::string text = fmt::format("a federation of {} sites; Ctrl-C ends it\n\n", federation.sites().size());
  for (const LocalSite& site : federation.sites()) text += fmt::format("  {}  {}\n", site.name, site.worker_socket);
  return text + fmt::format("\nstart a run on it:\n  fluvial run start plan.toml --admin-socket {}\n",
                            federation.admin().place());
}

// Until standard input ends (when asked to watch it), a signal arrives, or a process fails.
Status wait_for_end(const Supervisor& supervisor, bool until_eof) {
  pollfd input{.fd = until_eof ? STDIN_FILENO : -1, .events = POLLIN, .revents = 0};
  for (;;) {
    const int changed = ::poll(&input, 1, static_cast<int>(kLookInterval.count()));
    if (const auto failure = supervisor.failure()) {
      return failure->code == Code::kCancelled ? Status() : Status(*failure);
    }
    if (changed <= 0) continue;
    char ignored[256];
    if (::read(STDIN_FILENO, ignored, sizeof(ignored)) <= 0) return {};
  }
}

// All sites come from one address and at once, and each handshake is their common processor's to do.
void widen(FederationShape& shape) {
  const std::string many = std::to_string(2 * shape.sites + 256);
  for (const char* parent : {"coordinator", "aggregator"}) {
    shape.arguments[parent] = {"--budget-strangers-max",          many,   "--budget-strangers-per-address-max", many,
                               "--session-handshake-deadline-ms", "60000"};
  }
  auto& site = shape.arguments["site"];
  site.insert(site.end(), {"--session-handshake-deadline-ms", "60000", "--log-level", "warn"});
}

struct ProcessSetting {
  std::string role;
  std::vector<std::string> arguments;
};

Result<ProcessSetting> parse_setting(const std::string& text) {
  const std::size_t dot = text.find('.');
  const std::size_t equals = text.find('=');
  const Error unknown{Code::kInvalidArgument,
                      fmt::format("'{}': expected ROLE.KEY=VALUE with a setting's key, such as site.reduction=direct",
                                  printable(text, 80))};
  if (dot == std::string::npos || equals == std::string::npos || dot > equals) return unknown;
  const std::string name = text.substr(0, dot);
  const std::string key = text.substr(dot + 1, equals - dot - 1);
  for (const Role role : {Role::kCoordinator, Role::kAggregator, Role::kSite}) {
    if (role_name(role) != name) continue;
    for (const config::SettingInfo& info : config::describe_settings(role)) {
      if (info.key == key) return ProcessSetting{name, {info.flag, text.substr(equals + 1)}};
    }
  }
  return unknown;
}

Result<FederationShape> shape_of(const LocalOptions& options) {
  FederationShape shape = options.shape;
  shape.arguments["site"] = {"--workers", std::to_string(options.workers)};
  if (shape.sites_per_process == 0) shape.sites_per_process = shape.sites <= kProcessesMax ? 1 : kSitesPerProcess;
  if (shape.sites > kProcessesMax) widen(shape);
  for (const std::string& text : options.settings) {
    FLUVIAL_ASSIGN(const ProcessSetting setting, parse_setting(text));
    auto& arguments = shape.arguments[setting.role];
    arguments.insert(arguments.end(), setting.arguments.begin(), setting.arguments.end());
  }
  return shape;
}

int run_local(const Io& io, const LocalOptions& options) {
  Result<FederationShape> shape = shape_of(options);
  if (!shape.ok()) return fail(io, "local: --set", shape.error(), kUsage);
  const auto executable = own_executable();
  if (!executable.ok()) return fail(io, "local", executable.error());
  auto folder = WorkFolder::open(options.work_dir, /*keep=*/false, "local");
  if (!folder.ok()) return fail(io, "local", folder.error(), kUsage);
  auto supervisor = Supervisor::create(std::chrono::seconds(10));
  if (!supervisor.ok()) return fail(io, "local", supervisor.error());
  LocalFederation federation(**supervisor, *executable, folder->path(), *std::move(shape));
  Status status = federation.start();
  if (status.ok()) {
    io.print(options.json ? json::serialize(description(federation, *folder)) + "\n" : instructions(federation));
    status = wait_for_end(**supervisor, options.until_eof);
  }
  const Error explained = status.ok() ? Error{} : (*supervisor)->explain(status.error());
  (*supervisor)->stop();
  return status.ok() ? kDone : fail(io, "local", explained);
}

}  // namespace

void add_local_command(CLI::App& app, Commands& commands) {
  const auto options = std::make_shared<LocalOptions>();
  CLI::App* local = app.add_subcommand("local", "a whole federation on this machine, for tests of your own");
  const auto number = [local](const std::string& flag, std::uint64_t& value, const std::string& help,
                              std::uint64_t least, std::uint64_t most) {
    local->add_option(flag, value, help)->type_name("N")->check(whole_number(least, most))->capture_default_str();
  };
  number("--sites", options->shape.sites, "sites", 1, kSitesMax);
  number("--sites-per-process", options->shape.sites_per_process,
         fmt::format("sites that share a process (fluvial edge --sites); 0: none do up to {} sites, and {} of more",
                     kProcessesMax, kSitesPerProcess),
         0, kSitesMax);
  number("--aggregators", options->shape.aggregators, "regional aggregators; 0: none", 0, 30);
  number("--workers", options->workers, "workers that each site waits for", 1, 64);
  local
      ->add_option("--set", options->settings,
                   "a setting of its processes of that role (coordinator, aggregator or site); once for each")
      ->type_name("ROLE.KEY=VALUE")
      ->allow_extra_args(false);
  local->add_option("--work-dir", options->work_dir, "an empty folder to work in and leave (default: a temporary one)")
      ->type_name("PATH");
  local->add_flag("--until-eof", options->until_eof, "end when standard input does, as a parent process's pipe");
  local->add_flag("--json", options->json, "one line of JSON when it is up: sockets, ports, folder");
  local->footer(
      "It works in a temporary folder that goes with it, and no FLUVIAL_... variable sets anything of it. Python: "
      "fluvial.testing.LocalFederation.\n"
      "Examples:\n  fluvial local --sites 2\n  fluvial local --sites 500");
  local->callback(
      [&commands, options] { commands.chosen = [&commands, options] { return run_local(commands.io, *options); }; });
}

}  // namespace fluvial::cli

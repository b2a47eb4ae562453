// fluvial coordinator, aggregator and edge: the processes of a federation.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "aggregator/service/aggregator.h"
#include "cli/command.h"
#include "coordinator/service/coordinator.h"
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
struct RoleOptions {
  config::SettingsReader<Settings> reader;
  int ready_fd = -1;
};

template <typename Settings>
int run_role(const Commands& commands, const std::string& name, const RoleOptions<Settings>& options,
             Status (*run)(Settings, store::FileSystem&, telemetry::Logger, OnReady)) {
  const auto settings = options.reader.read(commands.environment);
  if (!settings.ok()) return fail(commands.io, name, settings.error(), kUsage);
  const auto level = telemetry::level_from_name(settings->log_level);
  const auto format = telemetry::log_format_from_name(settings->log_format);
  if (!level.ok() || !format.ok()) return fail(commands.io, name, level.ok() ? format.error() : level.error(), kUsage);
  OnReady on_ready = [descriptor = options.ready_fd](const std::string& ready) {
    if (descriptor >= 0) announce(descriptor, ready);
  };
  const Status ended =
      run(*settings, commands.files, telemetry::make_stderr_logger(*level, *format), std::move(on_ready));
  return ended.ok() ? kDone : fail(commands.io, name, ended.error());
}

template <typename Settings>
CLI::App* declare(CLI::App& app, Commands& commands, const std::string& name, const std::string& help,
                  Status (*run)(Settings, store::FileSystem&, telemetry::Logger, OnReady)) {
  const auto options = std::make_shared<RoleOptions<Settings>>();
  CLI::App* role = app.add_subcommand(name, help);
  options->reader.declare(*role);
  role->add_option("--ready-fd", options->ready_fd,
                   "write one line of JSON (ports, sockets, pid) to this inherited descriptor when ready")
      ->type_name("N")
      ->check(whole_number(3, 1'000'000));
  role->callback([&commands, name, options, run] {
    commands.chosen = [&commands, name, options, run] { return run_role(commands, name, *options, run); };
  });
  return role;
}

}  // namespace

void add_role_commands(CLI::App& app, Commands& commands) {
  declare<config::CoordinatorSettings>(app, commands, "coordinator",
                                       "the root: admits members, schedules rounds, holds the model",
                                       coordinator::run_coordinator)
      ->footer(
          "Example:\n  fluvial coordinator --data-dir /var/lib/fluvial --public-host fl.example.org\n"
          "It founds the federation on its first start. SIGTERM drains, then stops.");
  declare<config::AggregatorSettings>(app, commands, "aggregator", "an inner node: sums its region's updates exactly",
                                      aggregator::run_aggregator)
      ->footer("Example (after fluvial enroll):\n  fluvial aggregator --config /var/lib/fluvial/aggregator.toml");
  declare<config::EdgeSettings>(app, commands, "edge", "a site's agent: workers attach to it, it speaks for the site",
                                edge::run_edge)
      ->footer("Example (after fluvial enroll):\n  fluvial edge --config /var/lib/fluvial/edge.toml");
}

}  // namespace fluvial::cli

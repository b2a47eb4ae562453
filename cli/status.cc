// fluvial status: the federation on one screen, for whoever is asked what is going on.
#include <fmt/format.h>

#include <boost/json/serialize.hpp>
#include <chrono>
#include <memory>
#include <thread>

#include "cli/admin_client.h"
#include "cli/command.h"
#include "cli/run_watch.h"
#include "cli/waits.h"

namespace fluvial::cli {
namespace {

struct Options : AdminOptions {
  bool watch = false;
};

std::string shown(const Options& options, const json::value& status, const Terminal& terminal) {
  if (!options.json) return status_screen(status, terminal);
  return options.watch ? json::serialize(status) + "\n" : pretty(status);
}

int fail_status(const Io& io, const Error& error) {
  return fail(io, "status", error, error.code == Code::kUnavailable ? kNoCoordinator : kFailed);
}

// Until Ctrl-C: on a terminal in place, into a pipe whenever it says something else.
int watch(const Io& io, const Options& options) {
  const Terminal terminal = io.terminal();
  const bool in_place = terminal.is_interactive() && !options.json;
  std::string before;
  for (;;) {
    const auto status = options.client().get("/v1/status");
    const std::string now = status.ok() ? shown(options, *status, terminal) : status.error().message + "\n";
    if (in_place) {
      io.print("\033[H\033[J" + now);
    } else if (now != before) {
      io.print(options.json && !status.ok() ? "" : now);
    }
    if (!status.ok() && !in_place && now != before) io.note(now);
    before = now;
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
}

int once(const Io& io, const Options& options) {
  const auto status = options.client().get("/v1/status");
  if (!status.ok()) return fail_status(io, status.error());
  io.print(shown(options, *status, io.terminal()));
  return kDone;
}

}  // namespace

void add_status_command(CLI::App& app, Commands& commands) {
  const auto options = std::make_shared<Options>();
  CLI::App* status =
      app.add_subcommand("status", "the federation on one screen: runs, what they wait for, what is wrong");
  status->add_flag("--watch", options->watch, "stay, and show it anew each second");
  add_admin_options(*status, *options);
  add_json_flag(*status, *options);
  status->footer(
      "Typed at the coordinator. Each wait and each problem has an arrow (->) with what to do about it, and the page "
      "of\n"
      "the documentation that says more. A single node's own view: fluvial health, fluvial doctor.\n"
      "Exit status: 0 shown, 5 no coordinator answers, 1 anything else. Whether something is wrong does not change "
      "it.");
  status->callback([&commands, options] {
    commands.chosen = [&commands, options] {
      return options->watch ? watch(commands.io, *options) : once(commands.io, *options);
    };
  });
}

}  // namespace fluvial::cli

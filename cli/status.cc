// fluvial status: the federation on one screen, for whoever is asked what is going on.
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <thread>

#include "cli/admin_client.h"
#include "cli/command.h"
#include "cli/run_watch.h"
#include "cli/waits.h"

namespace fluvial::cli {
namespace {

struct StatusOptions : AdminOptions {
  bool watch = false;
};

std::string shown(const StatusOptions& options, const json::value& status, const Terminal& terminal) {
  if (!options.json) return status_screen(status, terminal);
  return options.watch ? one_line(status) + "\n" : pretty(status);
}

// What workers reported of each run's last round: on the screen, as `last` of the run. Without it the rest is shown.
void add_last_rounds(const AdminClient& client, json::value& status) {
  auto* runs = status.is_object() && status.as_object().contains("runs") ? status.at("runs").if_array() : nullptr;
  if (runs == nullptr) return;
  for (json::value& run : *runs) {
    const std::uint64_t round = count_member(run, "round");
    if (round == 0) continue;
    const auto rounds = client.get(fmt::format("/v1/rounds?run={}&from={}&limit=1", count_member(run, "id"), round));
    if (!rounds.ok() || array_member(*rounds, "rounds").empty()) continue;
    run.as_object()["last"] = array_member(*rounds, "rounds")[0];
  }
}

// Who is missing in one that is under way takes a look into the journal.
void add_rollover(const AdminClient& client, json::value& status) {
  const json::object* const object = status.if_object();
  const json::value* const known = object == nullptr ? nullptr : object->if_contains("authority");
  if (known == nullptr || text_member(*known, "phase", "none") == "none") return;
  auto authority = client.get("/v1/authority");
  if (authority.ok()) status.as_object()["authority"] = std::move(*authority);
}

// kUnavailable: no coordinator.
Result<json::value> ask_status(const StatusOptions& options) {
  const AdminClient client = options.client();
  FLUVIAL_ASSIGN(json::value status, client.get("/v1/status"));
  if (!options.json) add_last_rounds(client, status);
  add_rollover(client, status);
  return status;
}

int fail_status(const Io& io, const Error& error) {
  return fail(io, "status", error, error.code == Code::kUnavailable ? kNoCoordinator : kFailed);
}

// Until Ctrl-C: on a terminal in place, into a pipe whenever it says something else.
int watch_status(const Io& io, const StatusOptions& options) {
  const Terminal terminal = io.terminal();
  const bool in_place = terminal.is_interactive() && !options.json;
  std::string before;
  for (;;) {
    const Result<json::value> status = ask_status(options);
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

int once(const Io& io, const StatusOptions& options) {
  const Result<json::value> status = ask_status(options);
  if (!status.ok()) return fail_status(io, status.error());
  io.print(shown(options, *status, io.terminal()));
  return kDone;
}

}  // namespace

void add_status_command(CLI::App& app, Commands& commands) {
  const auto options = std::make_shared<StatusOptions>();
  CLI::App* status =
      app.add_subcommand("status", "the federation on one screen: runs, what they wait for, what is wrong");
  status->add_flag("--watch", options->watch, "stay, and show it anew each second");
  add_admin_options(*status, *options);
  add_json_flag(*status, *options);
  status->footer(
      "Typed at the coordinator, or anywhere with --admin. Each wait and each problem has an arrow (->) with what to\n"
      "do about it, and the page of the documentation that says more. A single node's own view: fluvial health,\n"
      "fluvial doctor.\n"
      "Exit status: 0 shown, 5 no coordinator answers, 1 anything else. Whether something is wrong does not change "
      "it.");
  status->callback([&commands, options] {
    commands.chosen = [&commands, options] {
      return options->watch ? watch_status(commands.io, *options) : once(commands.io, *options);
    };
  });
}

}  // namespace fluvial::cli

// fluvial rounds: what was committed, and what is happening.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/admin_client.h"
#include "cli/command.h"
#include "cli/round_screen.h"
#include "cli/run_watch.h"

namespace fluvial::cli {
namespace {

struct RoundsOptions : AdminOptions {
  std::uint64_t run = 0;  // 0: the latest
  std::uint64_t from = 0;
  std::uint64_t limit = 0;
  std::string round;  // of `show`: a number, "latest" or "open"
  WatchOptions watching;

  std::string target(const std::string& path) const {
    std::string query;
    const auto add = [&query](const char* key, std::uint64_t value) {
      if (value > 0) query += fmt::format("{}{}={}", query.empty() ? "?" : "&", key, value);
    };
    add("run", run), add("from", from), add("limit", limit);
    return path + query;
  }
};

int list_rounds(const Io& io, RoundsOptions options) {
  const auto rounds = options.client().get(options.target("/v1/rounds"));
  if (!rounds.ok()) return fail(io, "rounds list", rounds.error());
  if (options.json) {
    io.print(pretty(*rounds));
    return kDone;
  }
  const bool is_part = options.from > 0 || options.limit > 0;
  io.print(rounds_table(*rounds, io.terminal()) + shares_table(*rounds, is_part, io.terminal()));
  const std::uint64_t pruned = count_member(*rounds, "pruned");
  if (pruned >= std::max<std::uint64_t>(options.from, 1)) {
    io.note(fmt::format("rounds up to {} are not in the coordinator's journal any more (keep_rounds)\n", pruned));
  }
  return kDone;
}

int show_open(const Io& io, const RoundsOptions& options) {
  const auto open = options.client().get(options.target("/v1/rounds/open"));
  if (!open.ok()) return fail(io, "rounds show", open.error());
  io.print(options.json ? pretty(*open) : open_round_screen(*open, io.terminal()));
  return kDone;
}

// The number of the last committed round; 0: there is none.
Result<std::uint64_t> last_round(const RoundsOptions& options) {
  const std::string run = options.run == 0 ? "latest" : std::to_string(options.run);
  FLUVIAL_ASSIGN(const json::value shown, options.client().get("/v1/runs/" + run));
  return count_member(shown, "committed");
}

int show_round(const Io& io, RoundsOptions options) {
  if (options.round == "open") return show_open(io, options);
  const Result<std::uint64_t> wanted =
      options.round == "latest" ? last_round(options) : Result<std::uint64_t>(std::stoull(options.round));
  if (!wanted.ok()) return fail(io, "rounds show", wanted.error());
  options.from = *wanted;
  options.limit = 1;
  const auto rounds = options.client().get(options.target("/v1/rounds"));
  if (!rounds.ok()) return fail(io, "rounds show", rounds.error());
  const json::array& found = array_member(*rounds, "rounds");
  if (found.empty() || count_member(found[0], "round") != *wanted) {
    const bool pruned = *wanted > 0 && *wanted <= count_member(*rounds, "pruned");
    return fail(io, "rounds show",
                {Code::kNotFound,
                 *wanted == 0 ? "no round is committed yet"
                              : fmt::format("round {} is {}", *wanted,
                                            pruned ? "no longer in the coordinator's journal (keep_rounds)"
                                                   : "not committed; fluvial rounds show open shows the open one")});
  }
  io.print(options.json ? pretty(found[0]) : round_screen(found[0]));
  return kDone;
}

constexpr std::uint64_t kRoundsBefore = 5;  // are told before what happens, unless --from says otherwise

int watch_rounds(const Io& io, RoundsOptions options) {
  const AdminClient client = options.client();
  const auto run = options.run == 0 ? client.latest_run() : Result<std::uint64_t>(options.run);
  const bool is_gone = !run.ok() && run.error().code == Code::kUnavailable;
  if (!run.ok()) return fail(io, "rounds watch", run.error(), is_gone ? kNoCoordinator : kFailed);
  options.run = *run;
  if (options.from == 0) {
    const Result<std::uint64_t> last = last_round(options);
    if (!last.ok()) return fail(io, "rounds watch", last.error());
    options.from = *last > kRoundsBefore ? *last - kRoundsBefore + 1 : 1;
  }
  return watch_run(io, "rounds watch", client, {*run, options.from, options.json}, options.watching);
}

Status is_round(const std::string& text) {
  const bool is_word = text == "latest" || text == "open";
  const bool is_number =
      !text.empty() && text.size() <= 18 && text.find_first_not_of("0123456789") == std::string::npos;
  if (is_word || (is_number && std::stoull(text) > 0)) return {};
  return Error{Code::kInvalidArgument, "no round"};
}

CLI::App* declare_rounds(CLI::App& parent, Commands& commands, const std::string& name, const std::string& help,
                         int (*action)(const Io&, RoundsOptions), const std::shared_ptr<RoundsOptions>& options) {
  CLI::App* app = parent.add_subcommand(name, help);
  app->add_option("--run", options->run, "the run's number (default: the latest)")
      ->type_name("RUN")
      ->check(whole_number(1));
  add_admin_options(*app, *options);
  add_json_flag(*app, *options);
  app->callback([&commands, action, options] {
    commands.chosen = [&commands, action, options] { return action(commands.io, *options); };
  });
  return app;
}

}  // namespace

void add_round_commands(CLI::App& app, Commands& commands) {
  CLI::App* rounds = app.add_subcommand("rounds", "the rounds of a run");

  const auto list_options = std::make_shared<RoundsOptions>();
  CLI::App* listed = declare_rounds(*rounds, commands, "list", "the committed rounds", list_rounds, list_options);
  listed->add_option("--from", list_options->from, "the first round to list")->type_name("N")->check(whole_number(1));
  listed->add_option("--limit", list_options->limit, "at most this many")->type_name("N")->check(whole_number(1));

  const auto show_options = std::make_shared<RoundsOptions>();
  CLI::App* shown = declare_rounds(*rounds, commands, "show", "everything about one round", show_round, show_options);
  shown->add_option("ROUND", show_options->round, "its number, latest (committed), or open")
      ->required()
      ->check(checked("a round's number, latest or open", is_round));
  shown->footer(
      "Of a committed round: who was in, late or refused, and why. Of the open one: who is in, what each of the "
      "others\n"
      "does, and until when it is waited for.");

  const auto watch_options = std::make_shared<RoundsOptions>();
  CLI::App* watched =
      declare_rounds(*rounds, commands, "watch", "what a run waits for, and a line a round, until the run ends",
                     watch_rounds, watch_options);
  watched->add_option("--from", watch_options->from, "begin with this round (default: the last five)")
      ->type_name("N")
      ->check(whole_number(1));
  add_watch_options(*watched, watch_options->watching);
  watched->footer(watch_footer());

  declare_round_trace(*rounds, commands);
  declare_round_verify(*rounds, commands);
}

}  // namespace fluvial::cli

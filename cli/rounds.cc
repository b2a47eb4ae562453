// fluvial rounds: what was committed, and what is happening.
#include <fmt/format.h>

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <cmath>
#include <limits>
#include <memory>

#include "cli/admin_client.h"
#include "cli/command.h"
#include "cli/format.h"
#include "cli/round_view.h"
#include "cli/table.h"

namespace fluvial::cli {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

struct Options : AdminOptions {
  std::uint64_t run = 0;  // 0: the latest
  std::uint64_t from = 0;
  std::uint64_t limit = 0;
  std::uint64_t round = 0;

  std::string target(const std::string& path) const {
    std::string query;
    const auto add = [&query](const char* key, std::uint64_t value) {
      if (value > 0) query += fmt::format("{}{}={}", query.empty() ? "?" : "&", key, value);
    };
    add("run", run), add("from", from), add("limit", limit);
    return path + query;
  }
};

int list(const Io& io, Options options) {
  const auto rounds = options.client().get(options.target("/v1/rounds"));
  if (!rounds.ok()) return fail(io, "rounds list", rounds.error());
  if (options.json) {
    io.print(pretty(*rounds));
    return kDone;
  }
  Table table({{"RUN", Align::kRight},
               {"ROUND", Align::kRight},
               {"SITES", Align::kRight},
               {"LATE", Align::kRight},
               {"REFUSED", Align::kRight},
               {"WEIGHT", Align::kRight},
               {"LOSS", Align::kRight},
               {"TEST ACCURACY", Align::kRight},
               {"UP", Align::kRight},
               {"DOWN", Align::kRight},
               {"TIME", Align::kRight},
               {"MODEL"}});
  for (const json::value& round : array_member(*rounds, "rounds")) {
    table.add({std::to_string(count_member(round, "run")), std::to_string(count_member(round, "round")),
               fmt::format("{}/{}", array_member(round, "contributors").size(), count_member(round, "participants")),
               std::to_string(count_member(round, "late")), std::to_string(array_member(round, "refused").size()),
               format_count(count_member(round, "weight")),
               format_metric(number_member(member(round, "metrics"), "loss", kNone)),
               format_percent(number_member(member(round, "evaluation"), "test_accuracy", kNone)),
               format_bytes(number_member(round, "bytes_up", 0)), format_bytes(number_member(round, "bytes_down", 0)),
               format_seconds(number_member(round, "seconds", kNone)),
               text_member(round, "model_sha256").substr(0, 12)});
  }
  io.print(table.empty() ? "no committed rounds\n" : table.render(io.terminal()));
  const std::uint64_t pruned = count_member(*rounds, "pruned");
  if (pruned >= std::max<std::uint64_t>(options.from, 1)) {
    io.note(fmt::format("rounds up to {} are not in the coordinator's journal any more (keep_rounds)\n", pruned));
  }
  return kDone;
}

std::string describe(const json::value& round) {
  std::string out;
  const auto line = [&out](const char* key, const std::string& value) {
    out += fmt::format("{:<13} {}\n", key, value);
  };
  line("run", std::to_string(count_member(round, "run")));
  line("round", fmt::format("{} (attempt {})", count_member(round, "round"), count_member(round, "attempt")));
  line("committed", format_time(text_member(round, "committed_at")));
  line("took", format_seconds(number_member(round, "seconds", kNone)));
  line("participants", std::to_string(count_member(round, "participants")));
  line("contributors", site_names(array_member(round, "contributors")));
  line("late", std::to_string(count_member(round, "late")));
  for (const json::value& refusal : array_member(round, "refused")) {
    line("refused", fmt::format("{}: {} ({})", text_member(refusal, "name"), text_member(refusal, "message"),
                                text_member(refusal, "code")));
  }
  line("total weight", format_count(count_member(round, "weight")));
  line("received", format_bytes(number_member(round, "bytes_up", 0)));
  line("sent", format_bytes(number_member(round, "bytes_down", 0)));
  for (const char* group : {"metrics", "evaluation"}) {
    const auto* values = member(round, group).if_object();
    if (values == nullptr) continue;
    for (const auto& [key, value] : *values) line(std::string(key).c_str(), format_metric(to_number(value, kNone)));
  }
  line("model", "sha256 " + text_member(round, "model_sha256"));
  return out;
}

int show(const Io& io, Options options) {
  options.from = options.round;
  options.limit = 1;
  const auto rounds = options.client().get(options.target("/v1/rounds"));
  if (!rounds.ok()) return fail(io, "rounds show", rounds.error());
  const json::array& found = array_member(*rounds, "rounds");
  if (found.empty() || count_member(found[0], "round") != options.round) {
    const bool pruned = options.round <= count_member(*rounds, "pruned");
    return fail(io, "rounds show",
                {Code::kNotFound,
                 fmt::format("round {} is {}", options.round,
                             pruned ? "no longer in the coordinator's journal (keep_rounds)" : "not committed")});
  }
  io.print(options.json ? pretty(found[0]) : describe(found[0]));
  return kDone;
}

int watch(const Io& io, Options options) {
  const AdminClient client = options.client();
  const auto run = options.run == 0 ? client.latest_run() : Result<std::uint64_t>(options.run);
  if (!run.ok()) return fail(io, "rounds watch", run.error());
  options.run = *run;
  const auto shown = client.get(fmt::format("/v1/runs/{}", *run));
  if (!shown.ok()) return fail(io, "rounds watch", shown.error());
  RoundView view(io, count_member(*shown, "rounds"), RoundView::Evaluation::kSeparate);
  const Status done = client.watch(options.target("/v1/rounds/watch"), [&](const json::value& event) {
    if (options.json) {
      io.print(json::serialize(event) + "\n");
    } else {
      view.on_event(event);
    }
    return true;
  });
  view.finish();
  return done.ok() ? kDone : fail(io, "rounds watch", done.error());
}

CLI::App* declare(CLI::App& parent, Commands& commands, const std::string& name, const std::string& help,
                  int (*action)(const Io&, Options), const std::shared_ptr<Options>& options) {
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

  const auto list_options = std::make_shared<Options>();
  CLI::App* listed = declare(*rounds, commands, "list", "the committed rounds", list, list_options);
  listed->add_option("--from", list_options->from, "the first round to list")->type_name("N")->check(whole_number(1));
  listed->add_option("--limit", list_options->limit, "at most so many")->type_name("N")->check(whole_number(1));

  const auto show_options = std::make_shared<Options>();
  CLI::App* shown = declare(*rounds, commands, "show", "everything about one round", show, show_options);
  shown->add_option("ROUND", show_options->round, "its number")->required()->check(whole_number(1));

  const auto watch_options = std::make_shared<Options>();
  CLI::App* watched = declare(*rounds, commands, "watch", "a line a round, as it is committed, until the run ends",
                              watch, watch_options);
  watched->add_option("--from", watch_options->from, "begin with this round, also when it is long committed")
      ->type_name("N")
      ->check(whole_number(1));
}

}  // namespace fluvial::cli

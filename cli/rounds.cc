// fluvial rounds: what was committed, and what is happening.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>

#include "cli/admin_client.h"
#include "cli/command.h"
#include "cli/format.h"
#include "cli/metric_words.h"
#include "cli/round_view.h"
#include "cli/run_watch.h"
#include "cli/table.h"
#include "cli/waits.h"
#include "core/round/fairness.h"

namespace fluvial::cli {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

constexpr std::size_t kMetricColumns = 6;
constexpr std::size_t kMetricsOfASite = 8;

std::string upper(std::string text) {
  for (char& letter : text) {
    if (letter >= 'a' && letter <= 'z') letter = static_cast<char>(letter - 'a' + 'A');
  }
  return text;
}

struct Options : AdminOptions {
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

// How much of the run each site has made, where some updates were of an earlier round than the one that counted them.
std::string shares(const json::array& sites, const Terminal& terminal) {
  double all = 0;
  std::uint64_t stale = 0;
  for (const json::value& site : sites) {
    all += number_member(site, "rounds", 0);
    stale += count_member(site, "stale");
  }
  if (stale == 0) return {};
  Table table({{"SITE"},
               {"ROUNDS", Align::kRight},
               {"SHARE", Align::kRight},
               {"OLD", Align::kRight},
               {"BY ROUNDS", Align::kRight}});
  for (const json::value& site : sites) {
    const std::uint64_t old = count_member(site, "stale");
    const double by = old == 0 ? 0 : number_member(site, "staleness", 0) / static_cast<double>(old);
    table.add({text_member(site, "name"), std::to_string(count_member(site, "rounds")),
               fmt::format("{:.1f} %", 100 * number_member(site, "rounds", 0) / all), std::to_string(old),
               old == 0 ? "-" : fmt::format("{:.1f}", by)});
  }
  return "\n" + table.render(terminal);
}

int list(const Io& io, Options options) {
  const auto rounds = options.client().get(options.target("/v1/rounds"));
  if (!rounds.ok()) return fail(io, "rounds list", rounds.error());
  if (options.json) {
    io.print(pretty(*rounds));
    return kDone;
  }
  const json::array& listed = array_member(*rounds, "rounds");
  const std::vector<MetricName> metrics = metric_names(listed);
  const std::size_t shown = std::min(metrics.size(), kMetricColumns);
  std::vector<Table::Column> columns = {{"RUN", Align::kRight, 5},  {"ROUND", Align::kRight},
                                        {"SITES", Align::kRight},   {"LATE", Align::kRight},
                                        {"REFUSED", Align::kRight}, {"WEIGHT", Align::kRight, 4}};
  for (std::size_t i = 0; i < shown; ++i) {
    const int rank = i == 0 ? 0 : i == 1 ? 1 : 2;  // what was reported for the first makes room last
    columns.push_back({upper(metrics[i].title(metrics)), Align::kRight, rank});
  }
  columns.insert(
      columns.end(),
      {{"UP", Align::kRight}, {"DOWN", Align::kRight, 3}, {"TIME", Align::kRight}, {"MODEL", Align::kLeft, 6}});
  Table table(std::move(columns));
  for (const json::value& round : listed) {
    std::vector<std::string> cells = {
        std::to_string(count_member(round, "run")),
        std::to_string(count_member(round, "round")),
        fmt::format("{}/{}", array_member(round, "contributors").size(), count_member(round, "participants")),
        std::to_string(count_member(round, "late")),
        std::to_string(array_member(round, "refused").size()),
        format_count(count_member(round, "weight"))};
    for (std::size_t i = 0; i < shown; ++i) cells.push_back(metric_value(round, metrics[i]));
    cells.push_back(format_bytes(number_member(round, "bytes_up", 0)));
    cells.push_back(format_bytes(number_member(round, "bytes_down", 0)));
    cells.push_back(format_seconds(number_member(round, "seconds", kNone)));
    cells.push_back(text_member(round, "model_sha256").substr(0, 12));
    table.add(std::move(cells));
  }
  io.print(table.empty() ? "no committed rounds\n" : table.render(io.terminal()));
  io.print(shares(array_member(*rounds, "shares"), io.terminal()));
  const std::uint64_t pruned = count_member(*rounds, "pruned");
  if (pruned >= std::max<std::uint64_t>(options.from, 1)) {
    io.note(fmt::format("rounds up to {} are not in the coordinator's journal any more (keep_rounds)\n", pruned));
  }
  return kDone;
}

// A line a site that reported something.
std::string by_site(const json::array& contributors) {
  std::string out;
  for (const json::value& site : contributors) {
    const std::string metrics = metric_words(site, kMetricsOfASite, Terminal::plain());
    if (!metrics.empty()) out += fmt::format("{:<13} {}: {}\n", "at", text_member(site, "name"), metrics);
  }
  return out;
}

// Of a round with several passes, those before the last: who else has helped to choose what the last one is made in.
void add_passes(const json::value& round, const std::function<void(const std::string&, const std::string&)>& line) {
  for (const json::value& pass : array_member(round, "passes")) {
    line(fmt::format("in pass {}", count_member(pass, "pass") + 1), site_names(array_member(pass, "contributors")));
    line("with mean", "sha256 " + text_member(pass, "mean"));
  }
  if (const json::value& state = member(round, "codec_state"); state.is_object()) {
    line("codec state", fmt::format("sha256 {} ({}: what the next round begins with)", text_member(state, "sha256"),
                                    format_bytes(number_member(state, "bytes", 0))));
  }
}

std::string describe(const json::value& round) {
  std::string out;
  const auto line = [&out](const std::string& key, const std::string& value) {
    out += fmt::format("{:<13} {}\n", key, value);
  };
  line("run", std::to_string(count_member(round, "run")));
  line("round", fmt::format("{} (attempt {})", count_member(round, "round"), count_member(round, "attempt")));
  line("committed", format_time(text_member(round, "committed_at")));
  line("took", format_seconds(number_member(round, "seconds", kNone)));
  line("participants", std::to_string(count_member(round, "participants")));
  line("contributors", site_names(array_member(round, "contributors")));
  for (const json::value& site : array_member(round, "contributors")) {
    const std::uint64_t staleness = count_member(site, "staleness");
    if (staleness == 0) continue;
    line("of before", fmt::format("{}: its update of {} {} before", text_member(site, "name"), staleness,
                                  staleness == 1 ? "round" : "rounds"));
  }
  for (const json::value& site : array_member(round, "contributors")) {  // async.fairness = "rate"
    const double share = number_member(site, "share", 1);
    if (share == 1) continue;
    line("counts for", fmt::format("{}: {:.1f} times the fastest site's update, by weight", text_member(site, "name"),
                                   share * round::kRateRatioMost));
  }
  const json::array& late = array_member(round, "late_sites");
  if (const std::uint64_t count = count_member(round, "late"); late.size() < count || count == 0) {
    line("late", std::to_string(count));  // a version before this one named nobody
  }
  for (const json::value& site : late) {
    line("late", fmt::format("{}: {}", text_member(site, "name"), text_member(site, "reason")));
  }
  for (const json::value& refusal : array_member(round, "refused")) {
    line("refused", fmt::format("{}: {} ({})", text_member(refusal, "name"), text_member(refusal, "message"),
                                text_member(refusal, "code")));
  }
  line("total weight", format_count(count_member(round, "weight")));
  line("received", format_bytes(number_member(round, "bytes_up", 0)));
  line("sent", format_bytes(number_member(round, "bytes_down", 0)));
  const std::vector<MetricName> metrics = metric_names(round);
  for (const MetricName& metric : metrics) line(metric.title(metrics), metric_value(round, metric));
  out += by_site(array_member(round, "contributors"));
  line("model", "sha256 " + text_member(round, "model_sha256"));
  const std::string master = text_member(round, "master_sha256");
  if (!master.empty() && master != text_member(round, "model_sha256")) {
    line("master", "sha256 " + master + " (full precision: what `fluvial model export` gives)");
  }
  add_passes(round, line);
  return out;
}

std::string describe_open(const json::value& open, const Terminal& terminal) {
  std::uint64_t in = 0;
  Table table({{"SITE"}, {"STATE"}, {"DOING", Align::kLeft, 1}, {"REASON"}});
  for (const json::value& site : array_member(open, "sites")) {
    const std::string state = text_member(site, "state");
    in += state == "in" ? 1 : 0;
    table.add({text_member(site, "name"), state == "in" ? terminal.green(state) : terminal.yellow(state),
               text_member(site, "doing", "-"), text_member(site, "reason")});
  }
  const std::string pass = pass_words(open);
  return fmt::format(
      "round {} of run {}, attempt {}{}, open since {}: {} of {} in, quorum {}\n"
      "a quorum is enough in {}, the attempt ends in {}\n{}\n{}",
      count_member(open, "round"), count_member(open, "run"), count_member(open, "attempt"),
      pass.empty() ? "" : ", " + pass, format_time(text_member(open, "opened_at")), in,
      array_member(open, "sites").size(), count_member(open, "quorum"),
      format_seconds(number_member(open, "soft_left_s", kNone)),
      format_seconds(number_member(open, "hard_left_s", kNone)), tier_lines(open, 0), table.render(terminal));
}

int show_open(const Io& io, const Options& options) {
  const auto open = options.client().get(options.target("/v1/rounds/open"));
  if (!open.ok()) return fail(io, "rounds show", open.error());
  io.print(options.json ? pretty(*open) : describe_open(*open, io.terminal()));
  return kDone;
}

// The number of the last committed round; 0: there is none.
Result<std::uint64_t> last_round(const Options& options) {
  const std::string run = options.run == 0 ? "latest" : std::to_string(options.run);
  FLUVIAL_ASSIGN(const json::value shown, options.client().get("/v1/runs/" + run));
  return count_member(shown, "committed");
}

int show(const Io& io, Options options) {
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
  io.print(options.json ? pretty(found[0]) : describe(found[0]));
  return kDone;
}

constexpr std::uint64_t kRoundsBefore = 5;  // are told before what happens, unless --from says otherwise

int watch(const Io& io, Options options) {
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
  listed->add_option("--limit", list_options->limit, "at most this many")->type_name("N")->check(whole_number(1));

  const auto show_options = std::make_shared<Options>();
  CLI::App* shown = declare(*rounds, commands, "show", "everything about one round", show, show_options);
  shown->add_option("ROUND", show_options->round, "its number, latest (committed), or open")
      ->required()
      ->check(checked("a round's number, latest or open", is_round));
  shown->footer(
      "Of a committed round: who was in, late or refused, and why. Of the open one: who is in, what each of the "
      "others\n"
      "does, and until when it is waited for.");

  const auto watch_options = std::make_shared<Options>();
  CLI::App* watched = declare(*rounds, commands, "watch",
                              "what a run waits for, and a line a round, until the run ends", watch, watch_options);
  watched->add_option("--from", watch_options->from, "begin with this round (default: the last five)")
      ->type_name("N")
      ->check(whole_number(1));
  add_watch_options(*watched, watch_options->watching);
  watched->footer(watch_footer());

  declare_round_trace(*rounds, commands);
  declare_round_verify(*rounds, commands);
}

}  // namespace fluvial::cli

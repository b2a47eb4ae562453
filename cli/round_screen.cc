#include "cli/round_screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "cli/format.h"
#include "cli/metric_words.h"
#include "cli/round_view.h"
#include "cli/table.h"
#include "cli/waits.h"
#include "core/round/fairness.h"

namespace fluvial::cli {
namespace {

using Line = std::function<void(const std::string& key, const std::string& value)>;

constexpr std::size_t kMetricColumns = 6;
constexpr std::size_t kMetricsOfASite = 8;

std::string upper(std::string text) {
  for (char& letter : text) {
    if (letter >= 'a' && letter <= 'z') letter = static_cast<char>(letter - 'a' + 'A');
  }
  return text;
}

// Of a run that counts old updates: the coordinator tells shares of no other.
bool counts_old(const json::value& answer) {
  const auto has_stale = [](const json::value& round) { return count_member(round, "stale") > 0; };
  return !array_member(answer, "shares").empty() || std::ranges::any_of(array_member(answer, "rounds"), has_stale);
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
void add_passes(const json::value& round, const Line& line) {
  for (const json::value& pass : array_member(round, "passes")) {
    line(fmt::format("in pass {}", count_member(pass, "pass") + 1), site_names(array_member(pass, "contributors")));
    line("with mean", "sha256 " + text_member(pass, "mean"));
  }
  if (const json::value& state = member(round, "codec_state"); state.is_object()) {
    line("codec state", fmt::format("sha256 {} ({}: what the next round begins with)", text_member(state, "sha256"),
                                    format_bytes(number_member(state, "bytes", 0))));
  }
}

// What of an update is not as usual: of which round it is, and what it counts for.
void add_contributors(const json::value& round, const Line& line) {
  const std::uint64_t number = count_member(round, "round");
  for (const json::value& site : array_member(round, "contributors")) {
    const std::uint64_t staleness = count_member(site, "staleness");
    const std::uint64_t own = member(site, "own_round").is_number() ? count_member(site, "own_round") : number;
    if (staleness == 0 && own == number) continue;
    const std::string parent = text_member(site, "parent");
    line("old", fmt::format("{}: its update of round {}, staleness {}{}", text_member(site, "name"), own, staleness,
                            parent.empty() ? "" : ", admitted by " + parent));
  }
  for (const json::value& site : array_member(round, "contributors")) {  // async.fairness = "rate"
    const double share = number_member(site, "share", 1);
    if (share == 1) continue;
    line("counts for", fmt::format("{}: {:.1f} times the fastest site's update, by weight", text_member(site, "name"),
                                   share * round::kRateRatioMost));
  }
}

}  // namespace

std::string rounds_table(const json::value& answer, const Terminal& terminal) {
  const json::array& listed = array_member(answer, "rounds");
  const std::vector<MetricName> metrics = metric_names(listed);
  const std::size_t shown = std::min(metrics.size(), kMetricColumns);
  const bool has_old = counts_old(answer);
  std::vector<Table::Column> columns = {{"RUN", Align::kRight, 5}, {"ROUND", Align::kRight}, {"SITES", Align::kRight}};
  if (has_old) columns.push_back({"OLD", Align::kRight});
  columns.insert(columns.end(), {{"LATE", Align::kRight}, {"REFUSED", Align::kRight}, {"WEIGHT", Align::kRight, 4}});
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
        std::to_string(count_member(round, "run")), std::to_string(count_member(round, "round")),
        fmt::format("{}/{}", array_member(round, "contributors").size(), count_member(round, "participants"))};
    if (has_old) cells.push_back(std::to_string(count_member(round, "stale")));
    cells.push_back(std::to_string(count_member(round, "late")));
    cells.push_back(std::to_string(array_member(round, "refused").size()));
    cells.push_back(format_count(count_member(round, "weight")));
    for (std::size_t i = 0; i < shown; ++i) cells.push_back(metric_value(round, metrics[i]));
    cells.push_back(format_bytes(number_member(round, "bytes_up", 0)));
    cells.push_back(format_bytes(number_member(round, "bytes_down", 0)));
    cells.push_back(format_seconds(number_member(round, "seconds", kNoNumber)));
    cells.push_back(text_member(round, "model_sha256").substr(0, 12));
    table.add(std::move(cells));
  }
  return table.empty() ? "no committed rounds\n" : table.render(terminal);
}

std::string shares_table(const json::value& answer, bool is_part, const Terminal& terminal) {
  const json::array& sites = array_member(answer, "shares");
  double all = 0;
  for (const json::value& site : sites) all += number_member(site, "rounds", 0);
  if (all == 0) return {};
  Table table({{"SITE"},
               {"ROUNDS", Align::kRight},
               {"SHARE", Align::kRight},
               {"OLD", Align::kRight},
               {"STALENESS", Align::kRight}});
  for (const json::value& site : sites) {
    const std::uint64_t old = count_member(site, "stale");
    const double mean = old == 0 ? 0 : number_member(site, "staleness", 0) / static_cast<double>(old);
    table.add({text_member(site, "name"), std::to_string(count_member(site, "rounds")),
               fmt::format("{:.1f} %", 100 * number_member(site, "rounds", 0) / all), std::to_string(old),
               old == 0 ? "-" : fmt::format("{:.1f}", mean)});
  }
  return (is_part ? "\nof the whole run:\n" : "\n") + table.render(terminal);
}

std::string round_screen(const json::value& round) {
  std::string out;
  const auto line = [&out](const std::string& key, const std::string& value) {
    out += fmt::format("{:<13} {}\n", key, value);
  };
  line("run", std::to_string(count_member(round, "run")));
  line("round", fmt::format("{} (attempt {})", count_member(round, "round"), count_member(round, "attempt")));
  line("committed", format_time(text_member(round, "committed_at")));
  line("took", format_seconds(number_member(round, "seconds", kNoNumber)));
  line("participants", std::to_string(count_member(round, "participants")));
  line("contributors", site_names(array_member(round, "contributors")));
  add_contributors(round, line);
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
  if (const std::string words = not_finite_words(round); !words.empty()) line("not finite", words + ": in no mean");
  out += by_site(array_member(round, "contributors"));
  line("model", "sha256 " + text_member(round, "model_sha256"));
  const std::string master = text_member(round, "master_sha256");
  if (!master.empty() && master != text_member(round, "model_sha256")) {
    line("master", "sha256 " + master + " (full precision: what `fluvial model export` gives)");
  }
  add_passes(round, line);
  return out;
}

std::string open_round_screen(const json::value& open, const Terminal& terminal) {
  const bool is_window = is_async(open);
  std::uint64_t in = 0;
  Table table({{"SITE"}, {"STATE"}, {"DOING", Align::kLeft, 1}, {"REASON"}});
  for (const json::value& site : array_member(open, "sites")) {
    const std::string state = text_member(site, "state");
    in += state == "in" ? 1 : 0;
    const bool may_come = is_window && state == "awaited";  // and nobody waits for it
    table.add({text_member(site, "name"),
               state == "in" ? terminal.green(state)
               : may_come    ? "not in"
                             : terminal.yellow(state),
               text_member(site, "doing", "-"), text_member(site, "reason")});
  }
  const std::string pass = pass_words(open);
  const std::string quorum = std::to_string(count_member(open, "quorum"));
  return fmt::format(
      "{} {} of run {}, attempt {}{}, open since {}: {} of {} in{}\n"
      "a quorum{} is enough in {}, the attempt ends in {}\n{}\n{}",
      is_window ? "window" : "round", count_member(open, "round"), count_member(open, "run"),
      count_member(open, "attempt"), pass.empty() ? "" : ", " + pass, format_time(text_member(open, "opened_at")), in,
      is_window ? count_member(open, "goal") : array_member(open, "sites").size(),
      is_window ? "" : ", quorum " + quorum, is_window ? " of " + quorum : "",
      format_seconds(number_member(open, "soft_left_s", kNoNumber)),
      format_seconds(number_member(open, "hard_left_s", kNoNumber)), tier_lines(open, 0), table.render(terminal));
}

}  // namespace fluvial::cli

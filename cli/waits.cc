#include "cli/waits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "cli/authority_view.h"
#include "cli/format.h"
#include "cli/metric_words.h"

namespace fluvial::cli {
namespace {

constexpr std::size_t kScreenWaits = 8;
constexpr std::size_t kScreenMetrics = 6;
constexpr std::size_t kScreenProblems = 8;
constexpr std::size_t kNarrow = 40;  // columns: less is not tried for

std::string subject_shown(const json::value& wait) {
  const std::string node = text_member(wait, "node");
  return node.empty() ? text_member(wait, "what") : node;
}

std::string and_more(std::size_t all, std::size_t shown, const char* before) {
  return all > shown ? fmt::format("{}{} more", before, all - shown) : "";
}

// "word  text", the text wrapped beside the word.
std::string entry(const std::string& word, std::size_t word_columns, const std::string& text,
                  const Terminal& terminal) {
  const std::size_t gap = word_columns > display_width(word) ? word_columns - display_width(word) : 1;
  const std::size_t columns = std::max(terminal.columns(), kNarrow);
  return "  " + word + std::string(gap, ' ') + wrapped(text, columns - word_columns - 2, word_columns + 2) + "\n";
}

// "40.0 MiB/400.0 MiB, 12 s left".
std::string progress_words(const json::value& progress) {
  std::string words = fmt::format("{}/{}", format_bytes(number_member(progress, "done_bytes", 0)),
                                  format_bytes(number_member(progress, "total_bytes", 0)));
  const double left_s = number_member(progress, "eta_s", NAN);
  if (!std::isfinite(left_s)) return words;
  return words + (left_s < 60 ? fmt::format(", {:.0f} s left", left_s) : ", " + format_seconds(left_s) + " left");
}

std::string run_line(const json::value& run, const Terminal& terminal) {
  const std::string status = text_member(run, "status");
  const bool is_well = status == "running" || status == "done";
  std::string shown = is_well ? terminal.green(status) : terminal.red(status);
  if (const std::string why = text_member(run, "pausing"); !why.empty()) {
    shown += terminal.yellow(fmt::format(", pauses once the open round closes ({})", why));
  }
  return fmt::format("{}  {}  {}\n",
                     terminal.bold(fmt::format("run {} {}", count_member(run, "id"), text_member(run, "name"))), shown,
                     committed_words(run, count_member(run, "round")));
}

std::string counted(std::uint64_t here, std::uint64_t all, const char* what, const Terminal& terminal) {
  const std::string text = fmt::format("{} of {} {} connected", here, all, what);
  return here < all ? terminal.yellow(text) : text;
}

std::string header(const json::value& status, const Terminal& terminal) {
  return fmt::format(
      "{}  fluvial {}  {}, {}\n", terminal.bold(text_member(status, "federation")), text_member(status, "version"),
      counted(count_member(status, "sites_connected"), count_member(status, "sites_enrolled"), "sites", terminal),
      counted(count_member(status, "aggregators_connected"), count_member(status, "aggregators_enrolled"),
              "aggregators", terminal));
}

}  // namespace

json::array unusual(const json::array& waits) {
  json::array found;
  std::ranges::copy_if(waits, std::back_inserter(found),
                       [](const json::value& wait) { return text_member(wait, "severity") == "warning"; });
  return found;
}

std::string waits_words(const json::array& waits, std::size_t names_max) {
  std::vector<std::string> words;
  for (const json::value& wait : waits) {
    if (words.size() == names_max) break;
    words.push_back(fmt::format("{}: {}", subject_shown(wait), text_member(wait, "reason")));
  }
  return fmt::format("{}{}", fmt::join(words, "; "), and_more(waits.size(), words.size(), "; and "));
}

std::string waits_names(const json::array& waits, std::size_t names_max) {
  std::vector<std::string> names;
  for (const json::value& wait : waits) {
    if (names.size() < names_max) names.push_back(subject_shown(wait));
  }
  return fmt::format("{}{}", fmt::join(names, ", "), and_more(waits.size(), names.size(), " and "));
}

std::string open_words(const json::value& open) {
  if (!open.is_object()) return "";
  const std::uint64_t attempt = count_member(open, "attempt");
  const double open_s = number_member(open, "open_s", NAN);
  std::vector<std::string> which;
  if (attempt > 1) which.push_back(fmt::format("attempt {}", attempt));
  if (std::string pass = pass_words(open); !pass.empty()) which.push_back(std::move(pass));
  const bool is_window = is_async(open);
  return fmt::format("{} {} open{}{}: {} of {} in{}", is_window ? "window" : "round", count_member(open, "round"),
                     std::isfinite(open_s) ? fmt::format(" for {:.0f} s", open_s) : "",
                     which.empty() ? "" : fmt::format(" ({})", fmt::join(which, ", ")), count_member(open, "in"),
                     wanted_in(open), is_window ? "" : fmt::format(", quorum {}", count_member(open, "quorum")));
}

bool is_async(const json::value& of) { return text_member(of, "mode") == "async"; }

std::string committed_words(const json::value& run, std::uint64_t committed) {
  return fmt::format("{} of {} {} committed", committed, count_member(run, "rounds"),
                     is_async(run) ? "windows" : "rounds");
}

std::uint64_t wanted_in(const json::value& open) {
  return count_member(open, is_async(open) ? "goal" : "participants");
}

std::string pass_words(const json::value& open) {
  const json::value& pass = member(open, "pass");
  if (!pass.is_object()) return "";
  return fmt::format("pass {} of {}", count_member(pass, "index") + 1, count_member(pass, "count"));
}

std::string doing_words(const json::value& node) {
  const std::string words = text_member(node, "doing", "-");
  const json::value& progress = member(node, "progress");
  return progress.is_object() ? words + " " + progress_words(progress) : words;
}

std::string tier_lines(const json::value& open, std::size_t indent) {
  std::string lines;
  for (const json::value& tier : array_member(open, "tiers")) {
    const std::string doing = text_member(tier, "doing");
    const std::string child = text_member(tier, "child") + "s";
    const std::string parent = text_member(tier, "parent") == "aggregator" ? "aggregators" : "coordinator";
    const std::string way = doing == "fetching" ? parent + " -> " + child : child + " -> " + parent;
    lines +=
        fmt::format("{:{}}{}: {} {}, {}\n", "", indent, way, count_member(tier, "nodes"), doing, progress_words(tier));
  }
  return lines;
}

std::string waits_block(const json::array& waits, std::size_t most, const Terminal& terminal) {
  std::size_t word_columns = 0;
  const std::size_t shown = std::min(waits.size(), most);
  for (std::size_t i = 0; i < shown; ++i) word_columns = std::max(word_columns, subject_shown(waits[i]).size() + 2);
  word_columns = std::min<std::size_t>(word_columns, 26);
  std::string out;
  for (std::size_t i = 0; i < shown; ++i) {
    const bool is_usual = text_member(waits[i], "severity") != "warning";
    const std::string name = shorten(subject_shown(waits[i]), word_columns - 2);
    out += entry(is_usual ? name : terminal.yellow(name), word_columns, text_member(waits[i], "reason"), terminal);
    const std::string advice = text_member(waits[i], "do");
    if (!advice.empty()) out += entry("", word_columns, "-> " + advice, terminal);
  }
  if (waits.size() > shown) out += fmt::format("  and {} more\n", waits.size() - shown);
  return out;
}

std::string problems_block(const json::array& problems, std::size_t most, const Terminal& terminal) {
  constexpr std::size_t kWordColumns = 9;
  std::string out;
  for (std::size_t i = 0; i < std::min(problems.size(), most); ++i) {
    const json::value& problem = problems[i];
    const std::string severity = text_member(problem, "severity");
    out += entry(severity == "error" ? terminal.red(severity) : terminal.yellow(severity), kWordColumns,
                 text_member(problem, "what"), terminal);
    out += entry("", kWordColumns, "-> " + text_member(problem, "do"), terminal);
    const std::string page = text_member(problem, "runbook");
    if (!page.empty()) out += entry("", kWordColumns, terminal.dim(page), terminal);
  }
  if (problems.size() > most) {
    out += fmt::format("  and {} more: fluvial status --json\n", problems.size() - most);
  }
  return out;
}

std::string status_screen(const json::value& status, const Terminal& terminal) {
  std::string out = header(status, terminal);
  const json::array& runs = array_member(status, "runs");
  if (runs.empty()) out += "\nno run is active: fluvial run start begins one, fluvial run list shows those before\n";
  for (const json::value& run : runs) {
    out += "\n" + run_line(run, terminal);
    const std::string metrics = metric_words(member(run, "last"), kScreenMetrics, terminal);
    if (!metrics.empty()) out += fmt::format("  round {}: {}\n", count_member(run, "round"), metrics);
    const std::string left_out = not_finite_words(member(run, "last"));
    if (!left_out.empty()) out += fmt::format("  not finite, and in no mean: {}\n", left_out);
    const std::string open = open_words(member(run, "open"));
    if (!open.empty()) out += "  " + open + "\n" + tier_lines(member(run, "open"), 4);
  }
  if (const json::array& waits = array_member(status, "waits"); !waits.empty()) {
    out += "\n" + terminal.bold("waits for") + "\n" + waits_block(waits, kScreenWaits, terminal);
  }
  if (const std::string rollover = rollover_lines(member(status, "authority"), terminal); !rollover.empty()) {
    out += "\n" + rollover;
  }
  const json::array& problems = array_member(status, "problems");
  out += problems.empty() ? "\n" + terminal.green("nothing is wrong") + "\n"
                          : "\n" + terminal.bold("wrong") + "\n" + problems_block(problems, kScreenProblems, terminal);
  return out;
}

std::string wrapped(const std::string& text, std::size_t columns, std::size_t indent) {
  std::string out;
  std::size_t at = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    const std::size_t width = display_width(word);
    if (at > 0 && at + 1 + width > columns) {
      out += "\n" + std::string(indent, ' ');
      at = 0;
    } else if (at > 0) {
      out += ' ';
      ++at;
    }
    out += word;
    at += width;
    begin = end + 1;
  }
  return out;
}

}  // namespace fluvial::cli

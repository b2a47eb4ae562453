#include "cli/round_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "cli/format.h"
#include "cli/metric_words.h"
#include "cli/waits.h"
#include "core/round/window_goal.h"

namespace fluvial::cli {
namespace {

constexpr std::size_t kWaitsTold = 4;      // by name
constexpr std::size_t kMetricsInLine = 3;  // `rounds show` has all of them
constexpr std::size_t kMetricsOfAnEvaluation = 6;
constexpr std::size_t kAwaitedRounds = 1;  // how far the evaluation may lag behind the commits before we print without

std::string refusals(const json::value& round) {
  std::vector<std::string> texts;
  for (const json::value& refusal : array_member(round, "refused")) {
    const std::string name = text_member(refusal, "name");
    texts.push_back(fmt::format("{}: {}", name.empty() ? std::to_string(count_member(refusal, "site")) : name,
                                text_member(refusal, "message")));
  }
  return fmt::format("{}", fmt::join(texts, "; "));
}

// What stays the same while seconds and bytes go on.
std::string gist(const json::value& wait) {
  std::string reason = text_member(wait, "reason");
  std::erase_if(reason, [](char c) { return c >= '0' && c <= '9'; });
  return reason;
}

// A node's name, or a blank and what is waited for of nobody in particular.
std::string subject(const json::value& wait) {
  const std::string node = text_member(wait, "node");
  return node.empty() ? " " + text_member(wait, "what") : node;
}

// "3/4 sites", "3 of goal 3".
std::string counted_words(const json::value& round, std::optional<std::uint64_t> window_goal) {
  const std::size_t in = array_member(round, "contributors").size();
  const std::uint64_t participants = count_member(round, "participants");
  if (!window_goal) return fmt::format("{}/{} sites", in, participants);
  return fmt::format("{} of goal {}", in, round::window_goal_told(*window_goal, participants));
}

// What fits beside the bar on a narrow screen: who needs somebody comes first.
std::string beside_bar(const json::value& open, const json::array& waits) {
  const json::array needy = unusual(waits);
  const std::string whom = waits_words(needy.empty() ? waits : needy, kWaitsTold);
  if (!open.is_object()) return whom;
  const std::string in = fmt::format("{}/{} in", count_member(open, "in"), wanted_in(open));
  return whom.empty() ? in : in + "; " + whom;
}

}  // namespace

std::string format_round(const json::value& round, std::uint64_t rounds_total, const Terminal& terminal,
                         std::optional<std::uint64_t> window_goal) {
  const std::string number = std::to_string(count_member(round, "round"));
  const std::string total = std::to_string(rounds_total);
  const std::string counted = fmt::format("{:>{}}{}", number, total.size(), rounds_total > 0 ? "/" + total : "");
  std::string line =
      terminal.bold((window_goal ? "window " : "round ") + counted) + "  " + counted_words(round, window_goal);
  if (const std::string metrics = metric_words(round, kMetricsInLine, terminal); !metrics.empty())
    line += "  " + metrics;
  line += fmt::format("  up {:>9}  down {:>9}  {:>7}", format_bytes(number_member(round, "bytes_up", 0)),
                      format_bytes(number_member(round, "bytes_down", 0)),
                      format_seconds(number_member(round, "seconds", kNoNumber)));
  if (const std::uint64_t attempt = count_member(round, "attempt"); attempt > 1) {
    line += terminal.yellow(fmt::format("  attempt {}", attempt));
  }
  if (const std::uint64_t old = count_member(round, "stale"); old > 0) line += fmt::format("  {} old", old);
  if (const std::uint64_t late = count_member(round, "late"); late > 0) {
    line += terminal.yellow(fmt::format("  {} late", late));
  }
  if (!array_member(round, "refused").empty()) line += terminal.red("  refused " + refusals(round));
  return line;
}

std::string site_names(const json::array& contributors) {
  std::vector<std::string> names;
  for (const json::value& contributor : contributors) {
    const std::string name = text_member(contributor, "name");
    names.push_back(fmt::format("{} (weight {})",
                                name.empty() ? std::to_string(count_member(contributor, "site")) : name,
                                format_count(count_member(contributor, "weight"))));
  }
  return names.empty() ? "-" : fmt::format("{}", fmt::join(names, ", "));
}

void RoundView::of_plan(const json::value& plan) {
  if (is_async(plan)) window_goal_ = count_member(plan, "async.goal");
}

void RoundView::on_event(const json::value& event) {
  const std::string kind = text_member(event, "event");
  if (kind == "committed") {
    on_committed(event);
  } else if (kind == "evaluated") {
    on_evaluated(event);
  } else if (kind == "state") {
    on_state(event);
  } else if (kind == "waits") {
    on_waits(event);
  } else if (kind == "opened") {
    draw_bar(fmt::format("{} {}: {} sites are training", unit(), count_member(event, "round"),
                         count_member(event, "participants")));
  }
}

void RoundView::on_committed(const json::value& round) {
  const std::uint64_t number = count_member(round, "round");
  committed_ = std::max(committed_, number);
  late_updates_ += count_member(round, "late");
  last_round_ = round;
  for (const json::value& one : array_member(round, "contributors")) told_waits_.erase(text_member(one, "name"));
  if (evaluation_ == Evaluation::kSeparate) {
    print_line(format_round(round, rounds_total_, terminal_, window_goal_));
  } else {
    held_[number] = round;
    print_held(kAwaitedRounds);
  }
  draw_bar(fmt::format("{} {} committed", unit(), number));
}

void RoundView::on_evaluated(const json::value& event) {
  const std::uint64_t number = count_member(event, "round");
  const json::value& evaluation = member(event, "evaluation");
  if (count_member(last_round_, "round") == number && last_round_.is_object()) {
    last_round_.as_object()["evaluation"] = evaluation;
  }
  if (evaluation_ == Evaluation::kAwaited) {
    const auto held = held_.find(number);
    if (held == held_.end()) return;
    held->second.as_object()["evaluation"] = evaluation;
    print_held(static_cast<std::size_t>(std::distance(std::next(held), held_.end())));
    return;
  }
  const json::value evaluated = json::object{{"evaluation", evaluation}};
  print_line(fmt::format("{} {}  {}", unit(), number, metric_words(evaluated, kMetricsOfAnEvaluation, terminal_)));
}

void RoundView::on_state(const json::value& event) {
  const std::string status = text_member(event, "status");
  const std::string reason = text_member(event, "reason");
  if (status == status_ && reason == reason_) return;
  status_ = status;
  reason_ = reason;
  if (status == "paused" || status == "stopped") {
    print_held(0);
    print_line(terminal_.yellow(
        fmt::format("run {} {}{}{}", count_member(event, "run"), status, reason.empty() ? "" : ": ", reason)));
  }
}

void RoundView::on_waits(const json::value& event) {
  if (waits_ == Waits::kNotTold || status_ == "paused") return;  // why it is paused was said
  committed_ = std::max(committed_, count_member(event, "committed"));
  const json::array& waits = array_member(event, "waits");
  const std::string open = open_words(member(event, "open"));
  const std::string gap = open.empty() || waits.empty() ? "" : "; ";
  const auto telling = [&](const json::array& some) {
    return some.empty() ? "" : "waiting for " + waits_words(some, kWaitsTold);
  };
  if (terminal_.is_interactive()) return draw_bar(beside_bar(member(event, "open"), waits));
  // What passes by itself would be a line each time that somebody begins to do something else.
  forget_past(waits);
  const json::array needy = news(unusual(waits));
  const std::string line = std::exchange(waits_begun_, true) ? telling(needy) : open + gap + telling(waits);
  if (!line.empty()) print_line(line);
}

// A node that is not among them (between two rounds), or fetches the next model, still needs what it needed.
void RoundView::forget_past(const json::array& waits) {
  std::map<std::string, const json::value*> now;
  for (const json::value& wait : waits) now[subject(wait)] = &wait;
  std::erase_if(told_waits_, [&](const auto& told) {
    const auto found = now.find(told.first);
    if (found == now.end()) return told.first.starts_with(' ');
    const json::value& wait = *found->second;
    const bool does_other = text_member(wait, "severity") != "warning" && text_member(wait, "doing") != "fetching";
    return does_other && gist(wait) != told.second;
  });
}

// Those that were not told yet, or otherwise; from now on they are.
json::array RoundView::news(const json::array& needy) {
  json::array found;
  for (const json::value& wait : needy) {
    std::string& told = told_waits_[subject(wait)];
    if (told != gist(wait)) found.push_back(wait);
    told = gist(wait);
  }
  return found;
}

void RoundView::finish() {
  print_held(0);
  if (!bar_.empty()) io_.print("\r\033[K");
  bar_.clear();
}

void RoundView::print_held(std::size_t kept) {
  while (held_.size() > kept) {
    print_line(format_round(held_.begin()->second, rounds_total_, terminal_, window_goal_));
    held_.erase(held_.begin());
  }
}

void RoundView::print_line(const std::string& line) {
  io_.print(bar_.empty() ? line + "\n" : "\r\033[K" + line + "\n" + bar_);
}

void RoundView::draw_bar(const std::string& what) {
  if (!terminal_.is_interactive() || rounds_total_ == 0) return;
  const double part = static_cast<double>(committed_) / static_cast<double>(rounds_total_);
  const std::string bar = progress_bar(part, 32);
  bar_ = fmt::format("{} {}", terminal_.cyan(bar), shorten(what, std::max<std::size_t>(terminal_.columns(), 50) - 36));
  io_.print("\r\033[K" + bar_);
}

}  // namespace fluvial::cli

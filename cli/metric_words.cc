#include "cli/metric_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "cli/format.h"

namespace fluvial::cli {
namespace {

const char* group(bool evaluated) { return evaluated ? "evaluation" : "metrics"; }

bool is_accuracy(const std::string& name) { return name.find("accuracy") != std::string::npos; }

// What a person looks at first.
int rank(const std::string& name, bool evaluated) {
  if (evaluated && is_accuracy(name)) return 0;
  if (!evaluated && name == "loss") return 0;
  return name.find("loss") != std::string::npos || is_accuracy(name) ? 1 : 2;
}

std::vector<std::string> ordered(const json::array& rounds, bool evaluated) {
  std::set<std::string> names;
  for (const json::value& round : rounds) {
    const auto* values = member(round, group(evaluated)).if_object();
    if (values == nullptr) continue;
    for (const auto& [name, value] : *values) names.emplace(name);
  }
  std::vector<std::string> all(names.begin(), names.end());
  std::ranges::sort(all, {}, [&](const std::string& name) { return std::pair(rank(name, evaluated), name); });
  return all;
}

}  // namespace

std::string MetricName::title(const std::vector<MetricName>& beside) const {
  std::string words = name;
  std::ranges::replace(words, '_', ' ');
  const bool twice = evaluated && std::ranges::find(beside, MetricName{name, false}) != beside.end();
  return twice ? words + " (evaluated)" : words;
}

std::vector<MetricName> metric_names(const json::array& rounds) {
  const std::vector<std::string> trained = ordered(rounds, false);
  const std::vector<std::string> evaluated = ordered(rounds, true);
  std::vector<MetricName> names;
  for (std::size_t i = 0; i < std::max(trained.size(), evaluated.size()); ++i) {
    if (i < trained.size()) names.push_back({trained[i], false});
    if (i < evaluated.size()) names.push_back({evaluated[i], true});
  }
  return names;
}

std::vector<MetricName> metric_names(const json::value& round) { return metric_names(json::array{round}); }

std::string metric_value(const json::value& round, const MetricName& metric) {
  const double value = number_member(member(round, group(metric.evaluated)), metric.name, kNoNumber);
  return is_accuracy(metric.name) && value >= 0 && value <= 1 ? format_percent(value) : format_metric(value);
}

std::string metric_words(const json::value& round, std::size_t most, const Terminal& terminal) {
  const std::vector<MetricName> names = metric_names(round);
  std::string words;
  for (std::size_t i = 0; i < std::min(most, names.size()); ++i) {
    const std::string value = fmt::format("{:>6}", metric_value(round, names[i]));
    words += fmt::format("{}{} {}", words.empty() ? "" : "  ", names[i].title(names),
                         names[i].evaluated ? terminal.green(value) : value);
  }
  return words;
}

std::string not_finite_words(const json::value& round) {
  constexpr std::size_t kNamed = 5;
  std::string words;
  const auto* metrics = member(round, "not_finite").if_object();
  if (metrics == nullptr) return words;
  for (const auto& [name, sites] : *metrics) {
    const json::array& names = array_member(member(round, "not_finite"), name);
    words += fmt::format("{}{} of ", words.empty() ? "" : "; ", std::string_view(name));
    for (std::size_t i = 0; i < std::min(names.size(), kNamed); ++i) {
      words += fmt::format("{}{}", i == 0 ? "" : ", ", std::string_view(names[i].as_string()));
    }
    if (names.size() > kNamed) words += fmt::format(" and {} more", names.size() - kNamed);
  }
  return words;
}

}  // namespace fluvial::cli

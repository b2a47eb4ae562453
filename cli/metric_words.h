// What workers report of a round, as people read it. Names are the workers' own: none is expected. Pure text.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "cli/json.h"
#include "cli/terminal.h"

namespace fluvial::cli {

// One metric of a round: of the sites' `metrics` (their weighted mean) or of the coordinator's `evaluation`.
struct MetricName {
  std::string name;
  bool evaluated = false;

  bool operator==(const MetricName&) const = default;
  // "test accuracy"; "loss (evaluated)" when sites report one of that name, too.
  std::string title(const std::vector<MetricName>& beside) const;
};

// All that these rounds hold, the telling ones first: "loss" and what is called like it, then the rest by name; the
// sites' and the evaluation's in turn, so that the first few have some of both.
std::vector<MetricName> metric_names(const json::array& rounds);
std::vector<MetricName> metric_names(const json::value& round);

// "0.31", or "97.3 %" for what is called an accuracy and lies between 0 and 1; "-" where the round has none.
std::string metric_value(const json::value& round, const MetricName& metric);

// "loss    0.5  test accuracy  97.3 %": at most `most` of them; empty when nothing is reported.
std::string metric_words(const json::value& round, std::size_t most, const Terminal& terminal);

// "loss of site-1, site-2": whose metrics are in no mean of the round; empty: nobody's.
std::string not_finite_words(const json::value& round);

}  // namespace fluvial::cli

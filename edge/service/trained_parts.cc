#include "edge/service/trained_parts.h"

#include <fmt/format.h>

#include <map>
#include <string>
#include <utility>

namespace fluvial::edge {
namespace {

round::Metrics mean_metrics(const std::vector<local::TaskResult>& results) {
  struct Sum {
    double value = 0;
    double weight = 0;
  };
  std::map<std::string, Sum> sums;
  for (const local::TaskResult& result : results) {
    const auto weight = static_cast<double>(result.weight);
    for (const auto& [name, value] : result.metrics) {
      sums[name].value += value * weight;
      sums[name].weight += weight;
    }
  }
  round::Metrics metrics;
  for (const auto& [name, sum] : sums) {
    if (metrics.size() == local::kMetricsMax) break;
    metrics.emplace(name, sum.value / sum.weight);
  }
  return metrics;
}

}  // namespace

Result<Trained> join_parts(HeldModel base, std::vector<local::TaskResult> results) {
  Trained trained;
  trained.base = std::move(base);
  trained.metrics = mean_metrics(results);
  std::uint64_t total = 0;
  for (local::TaskResult& result : results) {
    if (result.weight == 0 || result.weight >= round::kWeightLimit - total) {
      return Error{Code::kInvalidArgument,
                   fmt::format("a worker's weight is {} after {} of the others, expected 1 to {} "
                               "in all",
                               result.weight, total, round::kWeightLimit - 1)};
    }
    total += result.weight;
    trained.parts.push_back({std::move(result.model), static_cast<std::uint32_t>(result.weight)});
  }
  trained.weight = static_cast<std::uint32_t>(total);
  return trained;
}

}  // namespace fluvial::edge

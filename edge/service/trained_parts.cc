#include "edge/service/trained_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "edge/service/gpus.h"

namespace fluvial::edge {
namespace {

round::Metrics mean_metrics(const std::vector<UnitAnswers>& units) {
  struct Sum {
    double value = 0;
    double weight = 0;
  };
  std::map<std::string, Sum> sums;
  for (const UnitAnswers& unit : units) {
    for (const Answer& answer : unit) {
      const auto weight = static_cast<double>(answer.result.weight);
      for (const auto& [name, value] : answer.result.metrics) {
        sums[name].value += value * weight;
        sums[name].weight += weight;
      }
    }
  }
  round::Metrics metrics;
  for (const auto& [name, sum] : sums) {
    if (metrics.size() == local::kMetricsMax) break;
    metrics.emplace(name, sum.value / sum.weight);
  }
  return metrics;
}

ByteSpan bytes_of(const TrainedShard& shard) { return shard.model ? shard.model->bytes() : ByteSpan(); }

}  // namespace

bool same_results(const std::vector<TrainedPart>& a, const std::vector<TrainedPart>& b) {
  const auto same_memory = [](const TrainedShard& x, const TrainedShard& y) {
    return x.model == y.model && x.device == y.device;
  };
  return std::ranges::equal(a, b, [&](const TrainedPart& x, const TrainedPart& y) {
    return x.weight == y.weight && x.update == y.update && std::ranges::equal(x.shards, y.shards, same_memory);
  });
}

std::vector<PartView> views_of(const std::vector<TrainedPart>& parts) {
  std::vector<PartView> views;
  for (const TrainedPart& part : parts) {
    PartView view{.weight = part.weight, .update = part.update};
    if (part.shards.size() == 1) {
      view.model = bytes_of(part.shards.front());
      view.gpu = vector_in(part.shards.front().device);
    } else {
      for (const TrainedShard& shard : part.shards) {
        view.shards.push_back({bytes_of(shard), shard.ranges, vector_in(shard.device)});
      }
    }
    views.push_back(std::move(view));
  }
  return views;
}

std::vector<std::string> Trained::workers() const {
  std::vector<std::string> names;
  for (const TrainedPart& part : parts) {
    for (const TrainedShard& shard : part.shards) names.push_back(shard.worker);
  }
  return names;
}

Status check_unit(const UnitAnswers& answers, std::uint64_t model_bytes, std::size_t ranges_max) {
  const Answer& first = answers.front();
  std::vector<round::ByteRanges> ranges;
  std::size_t count = 0;
  for (const Answer& answer : answers) {
    if (answer.result.weight != first.result.weight || answer.result.update != first.result.update) {
      return Error{
          Code::kInvalidArgument,
          fmt::format("{} brought {} of weight {} and {} {} of weight {}: the ranks of a group bring one result",
                      first.worker, first.result.update ? "an update" : "a model", first.result.weight, answer.worker,
                      answer.result.update ? "an update" : "a model", answer.result.weight)};
    }
    ranges.push_back(answer.result.ranges);
    count += ranges.back().ranges().size();
  }
  if (count > ranges_max) {
    return Error{Code::kInvalidArgument, fmt::format("a group's ranks bring {} ranges; at most {}", count, ranges_max)};
  }
  return round::check_tiles(ranges, model_bytes);
}

Result<Trained> join_parts(HeldModel base, std::vector<UnitAnswers> units) {
  Trained trained;
  trained.base = std::move(base);
  trained.metrics = mean_metrics(units);
  std::uint64_t total = 0;
  for (UnitAnswers& unit : units) {
    const std::uint64_t weight = unit.front().result.weight;
    if (weight == 0 || weight >= round::kWeightLimit - total) {
      return Error{Code::kInvalidArgument,
                   fmt::format("a worker's weight is {} after {} of the others, expected 1 to {} "
                               "in all",
                               weight, total, round::kWeightLimit - 1)};
    }
    total += weight;
    TrainedPart part{.weight = static_cast<std::uint32_t>(weight), .update = unit.front().result.update};
    for (Answer& answer : unit) {
      part.shards.push_back({std::move(answer.worker), std::move(answer.result.model), std::move(answer.result.ranges),
                             std::move(answer.result.device)});
    }
    trained.parts.push_back(std::move(part));
  }
  trained.weight = static_cast<std::uint32_t>(total);
  return trained;
}

}  // namespace fluvial::edge

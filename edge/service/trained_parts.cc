#include "edge/service/trained_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "core/round/reported.h"
#include "edge/logic/site_machine.h"
#include "edge/service/gpus.h"

namespace fluvial::edge {
namespace {

// What counts nowhere at one worker counts nowhere for the site, unless another has a value that does.
round::Metrics mean_metrics(const std::vector<UnitAnswers>& units) {
  round::MetricMeans means;
  for (const UnitAnswers& unit : units) {
    for (const Answer& answer : unit) means.add(answer.result.metrics, answer.result.weight);
  }
  round::Metrics metrics = means.means();
  if (metrics.size() > local::kMetricsMax) {
    metrics.erase(std::next(metrics.begin(), static_cast<std::ptrdiff_t>(local::kMetricsMax)), metrics.end());
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

Result<Trained> join_parts(HeldModel base, std::vector<UnitAnswers> units, std::uint64_t weight_max) {
  std::vector<std::uint64_t> weights;
  for (const UnitAnswers& unit : units) weights.push_back(unit.front().result.weight);
  FLUVIAL_TRY(check_weights(weights, weight_max));
  Trained trained;
  trained.base = std::move(base);
  trained.metrics = mean_metrics(units);
  for (UnitAnswers& unit : units) {
    TrainedPart part{.weight = static_cast<std::uint32_t>(unit.front().result.weight),
                     .update = unit.front().result.update};
    trained.weight += part.weight;
    for (Answer& answer : unit) {
      part.shards.push_back({std::move(answer.worker), std::move(answer.result.model), std::move(answer.result.ranges),
                             std::move(answer.result.device)});
    }
    trained.parts.push_back(std::move(part));
  }
  return trained;
}

}  // namespace fluvial::edge

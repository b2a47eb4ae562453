#include "edge/reduce/reduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "kernels/fixed.h"
#include "kernels/vector.h"

namespace fluvial::edge {
namespace {

using Vectors = std::span<const std::span<const float>>;
using Weights = std::span<const std::uint32_t>;

// Carries out the steps.
class Reduction {
 public:
  Reduction(Vectors vectors, Weights weights, std::span<float> out) : vectors_(vectors), weights_(weights), out_(out) {
    double total = 0;
    for (const std::uint32_t weight : weights) total += static_cast<double>(weight);
    for (const std::uint32_t weight : weights) shares_.push_back(static_cast<double>(weight) / total);
  }

  Status run(const std::vector<Step>& steps) {
    for (const Step& step : steps) {
      for (const Sum& sum : step) FLUVIAL_TRY(add(sum));
    }
    return {};
  }

 private:
  std::span<float> written(const Place& place) {
    if (place.kind == Place::Kind::kResult) return out_;
    std::vector<float>& partial = partials_[place.rank];
    partial.resize(out_.size());
    return partial;
  }
  std::span<const float> read(const Place& place) {
    return place.kind == Place::Kind::kWorker ? vectors_[place.rank] : written(place);
  }

  Status add(const Sum& sum) {
    const std::span<float> into = written(sum.into).subspan(sum.first, sum.count);
    std::vector<std::span<const float>> of;
    std::vector<std::uint32_t> weights;
    std::vector<double> shares;
    for (const Place& place : sum.of) {
      const bool worker = place.kind == Place::Kind::kWorker;
      of.push_back(read(place).subspan(sum.first, sum.count));
      if (worker) weights.push_back(weights_[place.rank]);
      shares.push_back(worker ? shares_[place.rank] : 1.0);
    }
    if (weights.size() == vectors_.size()) return kernels::weighted_mean(of, weights, into);  // all of it in one sum
    kernels::combine(of, shares, into);
    return {};
  }

  Vectors vectors_;
  Weights weights_;
  std::vector<double> shares_;                          // of the whole weight
  std::map<std::size_t, std::vector<float>> partials_;  // by rank
  std::span<float> out_;
};

}  // namespace

Status reduce_mean(Algorithm algorithm, Vectors vectors, Weights weights, std::span<float> out) {
  if (vectors.empty() || vectors.size() > kRanksMax || vectors.size() != weights.size()) {
    return Error{Code::kInvalidArgument, fmt::format("{} vectors with {} weights, expected 1 to {} of each",
                                                     vectors.size(), weights.size(), kRanksMax)};
  }
  const auto bad =
      std::ranges::find_if(weights, [](auto weight) { return weight == 0 || weight >= kernels::kWeightEnd; });
  if (bad != weights.end()) {
    return Error{Code::kInvalidArgument, fmt::format("weight {}, expected 1 to {}", *bad, kernels::kWeightEnd - 1)};
  }
  for (const std::span<const float> vector : vectors) {
    FLUVIAL_CHECK(vector.size() == out.size(), "vectors of different lengths");
  }
  return Reduction(vectors, weights, out).run(make_schedule(algorithm, vectors.size(), out.size()));
}

}  // namespace fluvial::edge

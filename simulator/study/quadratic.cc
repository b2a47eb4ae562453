#include "simulator/study/quadratic.h"

#include "core/base/check.h"
#include "simulator/scenario/chance.h"
#include "simulator/study/draw.h"

namespace fluvial::simulator {
namespace {

constexpr std::size_t kDimensions = 16;
constexpr float kStep = 0.5F;  // of the way from the base to the site's centre
constexpr std::uint64_t kRoundsApart = 1024;
constexpr std::uint64_t kWeightLow = 100;
constexpr std::uint64_t kWeightHigh = 300;

}  // namespace

Quadratic::Quadratic(std::uint64_t seed, std::size_t sites, const Speeds& speeds) : Course(speeds) {
  Rng rng = Chance(seed).stream("quadratic");
  for (std::size_t site = 0; site < sites; ++site) {
    std::vector<float>& centre = centres_.emplace_back();
    for (std::size_t i = 0; i < kDimensions; ++i) centre.push_back(static_cast<float>(normal(rng)));
    weights_.push_back(static_cast<std::uint32_t>(between(rng, kWeightLow, kWeightHigh)));
  }
}

std::vector<double> Quadratic::mean_of_centres(std::span<const double> parts) const {
  std::vector<double> mean(kDimensions, 0.0);
  double total = 0;
  for (std::size_t site = 0; site < centres_.size(); ++site) {
    total += parts[site];
    for (std::size_t i = 0; i < kDimensions; ++i) mean[i] += parts[site] * static_cast<double>(centres_[site][i]);
  }
  for (double& value : mean) value /= total;
  return mean;
}

round::Schema Quadratic::schema() const {
  Result<round::Schema> schema =
      round::Schema::make({{"x", round::DType::kF32, {kDimensions}}, {"round", round::DType::kF32, {1}}});
  FLUVIAL_CHECK(schema.ok(), "the schema of a quadratic");
  return std::move(*schema);
}

std::vector<float> Quadratic::initial_model() const { return std::vector<float>(kDimensions + 1, 0.0F); }

std::span<const float> Quadratic::place(std::span<const float> model) { return model.first(kDimensions); }

std::vector<float> Quadratic::train(std::size_t site, RoundId round, std::span<const float> base) const {
  std::vector<float> local(base.begin(), base.end());
  for (std::size_t i = 0; i < kDimensions; ++i) local[i] -= kStep * (local[i] - centres_[site][i]);
  local[kDimensions] -= static_cast<float>(round.value() % kRoundsApart) / kRoundsApart;
  return local;
}

}  // namespace fluvial::simulator

#include "simulator/study/softmax.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/check.h"
#include "simulator/scenario/chance.h"
#include "simulator/study/draw.h"

namespace fluvial::simulator {
namespace {

constexpr std::size_t kFeatures = 20;
constexpr std::size_t kClasses = 10;
constexpr std::size_t kValues = kClasses * (kFeatures + 1);  // a row of weights for each class, then the biases
constexpr std::uint64_t kPointsLow = 100;                    // of a site
constexpr std::uint64_t kPointsHigh = 300;
constexpr double kSpread = 0.7;  // of the classes' centres, where points are 1 around them
constexpr double kShift = 0.5;   // of a site's points, all in one direction
constexpr double kSkew = 1.5;    // standard deviation of the logarithm of a class's share at a site
constexpr std::uint64_t kSteps = 10;
constexpr std::uint64_t kBatch = 20;
constexpr float kRate = 0.1F;

using Scores = std::array<float, kClasses>;

// In place: scores become probabilities. The result is the logarithm of their sum before.
float normalise(Scores& scores) {
  const float greatest = *std::ranges::max_element(scores);
  float sum = 0;
  for (float& score : scores) sum += score = std::exp(score - greatest);
  for (float& score : scores) score /= sum;
  return greatest + std::log(sum);
}

Scores scores_of(std::span<const float> model, std::span<const float> features) {
  Scores scores;
  for (std::size_t c = 0; c < kClasses; ++c) {
    float score = model[kClasses * kFeatures + c];
    for (std::size_t f = 0; f < kFeatures; ++f) score += model[c * kFeatures + f] * features[f];
    scores[c] = score;
  }
  return scores;
}

void add_gradient(std::span<const float> model, std::span<const float> features, std::uint32_t is,
                  std::span<float> gradient) {
  Scores error = scores_of(model, features);
  normalise(error);
  error[is] -= 1;
  for (std::size_t c = 0; c < kClasses; ++c) {
    for (std::size_t f = 0; f < kFeatures; ++f) gradient[c * kFeatures + f] += error[c] * features[f];
    gradient[kClasses * kFeatures + c] += error[c];
  }
}

// A class by its share.
std::uint32_t draw_class(Rng& rng, const std::array<double, kClasses>& shares) {
  double total = 0;
  for (const double share : shares) total += share;
  double left = rng.uniform() * total;
  std::uint32_t drawn = 0;
  while (drawn + 1 < kClasses && left >= shares[drawn]) left -= shares[drawn++];
  return drawn;
}

}  // namespace

std::span<const float> Softmax::Points::at(std::size_t point) const {
  return std::span(features).subspan(point * kFeatures, kFeatures);
}

Softmax::Softmax(std::uint64_t seed, std::size_t sites, const Speeds& speeds) : Course(speeds), seed_(seed) {
  const Chance chance(seed);
  Rng rng = chance.stream("classes");
  std::array<std::array<double, kFeatures>, kClasses> centres;
  for (auto& centre : centres) {
    for (double& value : centre) value = kSpread * normal(rng);
  }
  for (std::size_t site = 0; site < sites; ++site) {
    Rng own = chance.stream("points", site);
    std::array<double, kClasses> shares;
    for (double& share : shares) share = std::exp(kSkew * normal(own));
    std::array<double, kFeatures> shift;
    for (double& value : shift) value = kShift * normal(own);
    Points& points = sites_.emplace_back();
    const std::uint64_t count = between(own, kPointsLow, kPointsHigh);
    for (std::uint64_t point = 0; point < count; ++point) {
      const std::uint32_t is = draw_class(own, shares);
      points.classes.push_back(is);
      for (std::size_t f = 0; f < kFeatures; ++f) {
        points.features.push_back(static_cast<float>(centres[is][f] + shift[f] + normal(own)));
      }
    }
  }
  best_model_ = find_best_model();
}

double Softmax::sum_of_losses(std::span<const float> model, const Points& points) const {
  double sum = 0;
  for (std::size_t point = 0; point < points.size(); ++point) {
    Scores scores = scores_of(model, points.at(point));
    const float right = scores[points.classes[point]];
    sum += static_cast<double>(normalise(scores) - right);
  }
  return sum;
}

double Softmax::loss(std::span<const float> model) const {
  double sum = 0;
  double count = 0;
  for (const Points& points : sites_) {
    sum += sum_of_losses(model, points);
    count += static_cast<double>(points.size());
  }
  return sum / count;
}

double Softmax::loss_of_slow(std::span<const float> model) const {
  double sum = 0;
  double count = 0;
  for (std::size_t site = 0; site < sites_.size(); ++site) {
    if (!speeds().is_slow(site)) continue;
    sum += sum_of_losses(model, sites_[site]);
    count += static_cast<double>(sites_[site].size());
  }
  return count > 0 ? sum / count : 0;
}

// Gradient descent with momentum over all points at once.
std::vector<float> Softmax::find_best_model() const {
  constexpr int kIterations = 300;
  constexpr float kWholeRate = 0.3F;
  constexpr float kMomentum = 0.9F;
  std::size_t count = 0;
  for (const Points& points : sites_) count += points.size();
  const float rate = kWholeRate / static_cast<float>(count);
  std::vector<float> model = initial_model();
  std::vector<float> velocity(kValues, 0.0F);
  std::vector<float> gradient(kValues);
  for (int i = 0; i < kIterations; ++i) {
    std::ranges::fill(gradient, 0.0F);
    for (const Points& points : sites_) {
      for (std::size_t point = 0; point < points.size(); ++point) {
        add_gradient(model, points.at(point), points.classes[point], gradient);
      }
    }
    for (std::size_t v = 0; v < kValues; ++v) {
      velocity[v] = kMomentum * velocity[v] + gradient[v];
      model[v] -= rate * velocity[v];
    }
  }
  return model;
}

round::Schema Softmax::schema() const {
  Result<round::Schema> schema = round::Schema::make(
      {{"weight", round::DType::kF32, {kClasses, kFeatures}}, {"bias", round::DType::kF32, {kClasses}}});
  FLUVIAL_CHECK(schema.ok(), "the schema of a softmax regression");
  return std::move(*schema);
}

std::vector<float> Softmax::initial_model() const { return std::vector<float>(kValues, 0.0F); }

std::uint32_t Softmax::weight(std::size_t site) const { return static_cast<std::uint32_t>(sites_[site].size()); }

std::vector<float> Softmax::train(std::size_t site, RoundId round, std::span<const float> base) const {
  const Points& points = sites_[site];
  Rng rng = Chance(seed_ ^ (round.value() << 20)).stream("batches", site);
  std::vector<float> model(base.begin(), base.end());
  std::vector<float> gradient(kValues);
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    std::ranges::fill(gradient, 0.0F);
    for (std::uint64_t i = 0; i < kBatch; ++i) {
      const std::size_t point = rng.below(points.size());
      add_gradient(model, points.at(point), points.classes[point], gradient);
    }
    for (std::size_t v = 0; v < kValues; ++v) model[v] -= kRate / static_cast<float>(kBatch) * gradient[v];
  }
  return model;
}

}  // namespace fluvial::simulator

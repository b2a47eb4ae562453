#include "edge/reduce/reduce.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/base/rng.h"
#include "kernels/vector.h"

namespace fluvial::edge {
namespace {

struct Workers {
  std::vector<std::vector<float>> made;
  std::vector<std::uint32_t> weights;
  std::vector<std::span<const float>> vectors() const { return {made.begin(), made.end()}; }
};

Workers draw(std::size_t ranks, std::size_t values) {
  Rng rng(ranks * 1000 + values);
  Workers workers;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::vector<float>& vector = workers.made.emplace_back(values);
    for (float& value : vector) value = static_cast<float>(rng.uniform() - 0.5);
    workers.weights.push_back(1 + static_cast<std::uint32_t>(rng.uniform() * 1000));
  }
  return workers;
}

double mean_of(const Workers& workers, std::size_t at) {
  double sum = 0;
  double weight = 0;
  for (std::size_t k = 0; k < workers.made.size(); ++k) {
    sum += static_cast<double>(workers.made[k][at]) * workers.weights[k];
    weight += workers.weights[k];
  }
  return sum / weight;
}

class ReduceMean : public testing::TestWithParam<std::tuple<Algorithm, std::size_t>> {};

TEST_P(ReduceMean, IsTheMeanToRounding) {
  const auto [algorithm, ranks] = GetParam();
  for (const std::size_t values : {std::size_t{1}, std::size_t{5}, std::size_t{100'003}}) {
    const Workers workers = draw(ranks, values);
    std::vector<float> reduced(values);
    ASSERT_TRUE(reduce_mean(algorithm, workers.vectors(), workers.weights, reduced).ok());
    for (std::size_t i = 0; i < values; ++i) {
      // Each partial sum, at most 0.5 in size, is rounded once: half a unit in the last place of 0.5.
      ASSERT_NEAR(reduced[i], mean_of(workers, i), static_cast<double>(ranks) * 0x1p-26) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ReduceMean,
                         testing::Combine(testing::ValuesIn(kAlgorithms), testing::Values(1, 2, 3, 4, 7, 8)),
                         [](const auto& info) {
                           return std::string(algorithm_name(std::get<0>(info.param))) + "_" +
                                  std::to_string(std::get<1>(info.param));
                         });

TEST(ReduceMeanDirect, HasTheBitsOfTheKernel) {
  const Workers workers = draw(4, 100'003);
  std::vector<float> reduced(100'003);
  std::vector<float> expected(100'003);
  ASSERT_TRUE(reduce_mean(Algorithm::kDirect, workers.vectors(), workers.weights, reduced).ok());
  ASSERT_TRUE(kernels::weighted_mean(workers.vectors(), workers.weights, expected).ok());
  EXPECT_EQ(reduced, expected);
}

TEST(ReduceMeanOf, HugeWeightsAndValuesDoNotOverflow) {
  const std::vector<float> huge(10, 3e38F);
  std::vector<float> out(10);
  const std::vector<std::uint32_t> weights(4, (1U << 29) - 1);
  const std::vector<std::span<const float>> vectors(4, huge);
  for (const Algorithm algorithm : kAlgorithms) {
    ASSERT_TRUE(reduce_mean(algorithm, vectors, weights, out).ok());
    EXPECT_EQ(out, huge) << algorithm_name(algorithm);
  }
}

TEST(ReduceMeanOf, RefusesWrongWeights) {
  const std::vector<float> a(3);
  std::vector<float> out(3);
  const std::vector<std::span<const float>> two{a, a};
  const auto reduce = [&](const std::vector<std::uint32_t>& weights) {
    return reduce_mean(Algorithm::kRing, two, weights, out).ok();
  };
  EXPECT_TRUE(reduce({1, 2}));
  EXPECT_FALSE(reduce({1}));
  EXPECT_FALSE(reduce({1, 0}));
  EXPECT_FALSE(reduce({1, 1U << 29}));
  EXPECT_FALSE(reduce_mean(Algorithm::kRing, {}, {}, out).ok());
}

}  // namespace
}  // namespace fluvial::edge

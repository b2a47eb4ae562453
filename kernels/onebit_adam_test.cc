#include "kernels/onebit_adam.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/fixed.h"
#include "kernels/reference/onebit_adam.h"
#include "kernels/test_values.h"

namespace fluvial::kernels {
namespace {

using ::testing::HasSubstr;
using Floats = std::vector<float>;

constexpr int kScaleBits = 44;

// Sites and a server that send each other bytes, chunk by chunk.
struct Federation {
  struct Site {
    Floats momentum, residual;
    std::uint32_t weight;
  };

  OnebitAdam adam;
  ChunkLayout layout;
  Floats model, momentum, variance, residual;
  std::vector<Site> sites;
  std::uint64_t round = 0;
  std::size_t bytes_up = 0, bytes_down = 0;

  Federation(const OnebitAdamOptions& options, Floats start, std::vector<std::uint32_t> weights,
             std::uint64_t chunk_values, cpu::Target target = cpu::best_target())
      : adam(OnebitAdam::make(options, target).value()),
        layout{.value_count = start.size(), .chunk_values = chunk_values},
        model(std::move(start)),
        momentum(model.size(), 0.0F),
        variance(model.size(), 0.0F),
        residual(options.two_sided ? model.size() : 0, 0.0F) {
    for (const std::uint32_t weight : weights) {
      sites.push_back({Floats(model.size(), 0.0F), Floats(model.size(), 0.0F), weight});
    }
  }

  OnebitAdamServer server() { return {round, momentum, variance, residual}; }
  OnebitAdamSite site(std::size_t k) { return {round, sites[k].momentum, sites[k].residual}; }

  void send(Site& site, std::span<const float> gradient, std::span<std::int64_t> sum) {
    const Codec& codec = adam.upward(round);
    const VectorSchema schema{.layout = layout, .tensors = {}};
    Floats p(model.size());
    adam.fold(round, gradient, site.momentum, site.residual, p);
    const EncodePlan plan = codec.prepare(schema, p, {}, {}, {}, {}).value();
    for (std::size_t i = 0; i < layout.chunk_count(); ++i) {
      const auto chunk = layout.of(std::span<const float>(p), i);
      Buffer bytes(codec.encoded_bytes_max(chunk.size()));
      const auto left = layout.of(std::span(site.residual), i);
      bytes.shrink(codec.encode_residual_chunk(plan, i, chunk, bytes.span(), left).value());
      bytes_up += bytes.size();
      const auto to = layout.of(sum, i);
      ASSERT_TRUE(codec.decode_accumulate_chunk(bytes.span(), site.weight, kScaleBits, to).ok());
    }
  }

  void receive(std::size_t chunk, ByteSpan bytes) {
    bytes_down += bytes.size();
    for (Site& site : sites) {
      ASSERT_TRUE(adam.downward(round).decode_chunk(bytes, layout.of(std::span(site.momentum), chunk)).ok());
    }
  }

  void step(double lr, const std::vector<Floats>& gradients) {
    std::vector<std::int64_t> sum(model.size(), 0);
    std::uint64_t total = 0;
    for (std::size_t k = 0; k < sites.size(); ++k) {
      send(sites[k], gradients[k], sum);
      total += sites[k].weight;
    }
    Floats mean(model.size());
    mean_of_sums(sum, kScaleBits, total, mean);
    for (std::size_t i = 0; i < layout.chunk_count(); ++i) {
      const std::size_t size = layout.size(i);
      const bool compressed = &adam.downward(round) == &adam.upward(round) && !adam.warming_up(round);
      const OnebitAdamServer part = {round, layout.of(std::span(momentum), i), layout.of(std::span(variance), i),
                                     residual.empty() ? std::span<float>() : layout.of(std::span(residual), i)};
      Buffer out(adam.downward(round).encoded_bytes_max(size));
      const auto used = adam.step(part, lr, layout.of(std::span<const float>(mean), i), layout.of(std::span(model), i),
                                  out.span(), layout.first_value(i));
      ASSERT_TRUE(used.ok()) << used.error().message;
      ASSERT_EQ(*used != 0, compressed);
      receive(i, compressed ? ByteSpan(out.span().first(*used)) : std::as_bytes(part.momentum));
    }
    ++round;
  }
};

// Gradients of a noisy quadratic: curvature * (model - target_k) + noise.
struct Quadratic {
  Floats curvature, target;
  std::size_t sites;
  float noise;
  float spread;  // between the targets of neighbouring sites

  std::vector<Floats> gradients(std::span<const float> at, std::uint64_t round) const {
    std::vector<Floats> all;
    for (std::size_t k = 0; k < sites; ++k) {
      Floats g = test_values::normals(at.size(), 1'000 * round + k, noise);
      for (std::size_t i = 0; i < g.size(); ++i) {
        const float site_target = target[i] + spread * (static_cast<float>(k) - 0.5F * static_cast<float>(sites - 1));
        g[i] = curvature[i] == 0 ? 0.0F : g[i] + curvature[i] * (at[i] - site_target);
      }
      all.push_back(std::move(g));
    }
    return all;
  }
  double loss(std::span<const float> at) const {
    double sum = 0;
    for (std::size_t i = 0; i < at.size(); ++i) {
      const double away = static_cast<double>(at[i]) - static_cast<double>(target[i]);
      sum += 0.5 * static_cast<double>(curvature[i]) * away * away;
    }
    return sum / static_cast<double>(at.size());
  }
};

Quadratic quadratic(std::size_t values, std::size_t sites) {
  Quadratic q{Floats(values), test_values::normals(values, 7), sites, 0.3F, 1.0F};
  Rng rng(8);
  for (std::size_t i = 0; i < values; ++i) {
    q.curvature[i] = i % 10 == 3 ? 0.0F : static_cast<float>(0.5 + 4.5 * rng.uniform());
  }
  return q;
}

std::vector<reference::OnebitAdam::Vector> wide(const std::vector<Floats>& vectors) {
  std::vector<reference::OnebitAdam::Vector> all;
  for (const Floats& vector : vectors) all.emplace_back(vector.begin(), vector.end());
  return all;
}

class OnebitAdamModes : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Sides, OnebitAdamModes, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "two" : "one"; });

// Tens of rounds against an oracle in fp64 that rounds nothing.
TEST_P(OnebitAdamModes, FollowsTheReference) {
  constexpr std::size_t kValues = 700;
  const OnebitAdamOptions options{.variance_floor = 1e-4, .freeze_round = 15, .two_sided = GetParam()};
  const Quadratic problem = quadratic(kValues, 3);
  Floats start = test_values::normals(kValues, 9, 3.0F);
  reference::OnebitAdam expected(reference::OnebitAdam::Vector(start.begin(), start.end()), 3);
  expected.freeze_round = options.freeze_round;
  expected.variance_floor = options.variance_floor;
  expected.two_sided = GetParam();
  Federation actual(options, start, {3, 1, 7}, 512);
  for (std::uint64_t round = 0; round < 60; ++round) {
    const auto gradients = problem.gradients(actual.model, round);
    const double lr = 0.01 / (1.0 + 0.05 * static_cast<double>(round));
    actual.step(lr, gradients);
    // The codec's blocks begin at chunks: 512 is a multiple of them, so the oracle needs no chunks.
    expected.step(lr, wide(gradients), {3, 1, 7});
    for (std::size_t i = 0; i < kValues; ++i) {
      ASSERT_NEAR(static_cast<double>(actual.momentum[i]), expected.momentum[i], 2e-5) << round << " " << i;
      ASSERT_NEAR(static_cast<double>(actual.variance[i]), expected.variance[i], 1e-5 * expected.variance[i]);
      ASSERT_NEAR(static_cast<double>(actual.model[i]), expected.model[i], 2e-4) << round << " " << i;
    }
    for (std::size_t k = 0; k < 3; ++k) {
      for (std::size_t i = 0; i < kValues; ++i) {
        ASSERT_NEAR(static_cast<double>(actual.sites[k].residual[i]), expected.site_residual[k][i],
                    1e-6 * (20 + std::fabs(expected.site_residual[k][i])));
      }
    }
  }
}

TEST_P(OnebitAdamModes, ConvergesAsAdamDoes) {
  constexpr std::size_t kValues = 500;
  constexpr std::uint64_t kRounds = 1'500;
  const Quadratic problem = quadratic(kValues, 4);
  const Floats start = test_values::normals(kValues, 10, 4.0F);
  const auto run = [&](std::uint64_t freeze_round, bool feedback) {
    Federation federation({.beta2 = 0.99, .freeze_round = freeze_round, .two_sided = GetParam()}, start, {1, 1, 1, 1},
                          256);
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      const double left = 1.0 - static_cast<double>(round) / static_cast<double>(kRounds);
      federation.step(0.1 * left, problem.gradients(federation.model, round));
      if (feedback) continue;
      for (auto& site : federation.sites) std::ranges::fill(site.residual, 0.0F);
      std::ranges::fill(federation.residual, 0.0F);
    }
    return problem.loss(federation.model);
  };
  const double before = problem.loss(start);
  const double adam = run(kRounds, true);  // never compressed
  const double onebit = run(250, true);
  const double forgetful = run(250, false);  // a known mistake
  EXPECT_LT(adam, 1e-5 * before);
  EXPECT_LT(onebit, 2 * adam);
  EXPECT_GT(forgetful, 20 * onebit);  // the sites' targets differ: without feedback the vote of signs is biased
}

// Stopping after any round, saving, loading and going on gives the bits of not stopping.
TEST_P(OnebitAdamModes, GoesOnFromSavedStateToTheSameBits) {
  constexpr std::size_t kValues = 300;
  constexpr std::uint64_t kRounds = 12;
  const OnebitAdamOptions options{
      .variance_floor = 1e-5, .freeze_round = 5, .block_values = 128, .two_sided = GetParam()};
  const Quadratic problem = quadratic(kValues, 2);
  const Floats start = test_values::normals(kValues, 11);
  const auto go_on = [&](Federation& run) {
    while (run.round < kRounds) run.step(0.01, problem.gradients(run.model, run.round));
  };
  Federation whole(options, start, {1, 2}, 128);
  go_on(whole);
  for (std::uint64_t stop = 0; stop <= kRounds; ++stop) {
    Federation first(options, start, {1, 2}, 128);
    while (first.round < stop) first.step(0.01, problem.gradients(first.model, first.round));
    Federation second(options, first.model, {1, 2}, 128);
    Buffer server_bytes(saved_bytes(first.server()));
    save(first.server(), server_bytes.span());
    OnebitAdamServer server = second.server();
    ASSERT_TRUE(load(server_bytes.span(), &server).ok());
    second.round = server.round;
    for (std::size_t k = 0; k < 2; ++k) {
      Buffer site_bytes(saved_bytes(first.site(k)));
      save(first.site(k), site_bytes.span());
      OnebitAdamSite site = second.site(k);
      ASSERT_TRUE(load(site_bytes.span(), &site).ok());
      EXPECT_EQ(site.round, stop);
    }
    go_on(second);
    EXPECT_EQ(test_values::bits_of(second.model), test_values::bits_of(whole.model)) << "stopped after " << stop;
    EXPECT_EQ(test_values::bits_of(second.momentum), test_values::bits_of(whole.momentum));
    for (std::size_t k = 0; k < 2; ++k) {
      EXPECT_EQ(test_values::bits_of(second.sites[k].residual), test_values::bits_of(whole.sites[k].residual));
    }
  }
  // What public versions do on loading: the residuals are gone, and so are the bits.
  Federation lost(options, start, {1, 2}, 128);
  while (lost.round < 8) lost.step(0.01, problem.gradients(lost.model, lost.round));
  for (auto& site : lost.sites) std::ranges::fill(site.residual, 0.0F);
  go_on(lost);
  EXPECT_NE(test_values::bits_of(lost.model), test_values::bits_of(whole.model));
}

TEST_P(OnebitAdamModes, GivesTheSameBitsOnEveryTargetAndInAnyChunks) {
  constexpr std::size_t kValues = 1'000;
  const OnebitAdamOptions options{.freeze_round = 4, .block_values = 128, .two_sided = GetParam()};
  const Quadratic problem = quadratic(kValues, 2);
  std::vector<std::uint32_t> expected;
  for (const cpu::Target target : cpu::supported_targets()) {
    for (const std::uint64_t chunk_values : {128U, 384U, 4'096U}) {
      Federation run(options, test_values::normals(kValues, 12), {5, 2}, chunk_values, target);
      while (run.round < 10) run.step(0.02, problem.gradients(run.model, run.round));
      auto bits = test_values::bits_of(run.model);
      for (const std::uint32_t m : test_values::bits_of(run.sites[1].momentum)) bits.push_back(m);
      if (expected.empty()) expected = bits;
      ASSERT_TRUE(bits == expected) << cpu::target_name(target) << ", chunks of " << chunk_values;
    }
  }
}

TEST_P(OnebitAdamModes, CoordinatesWithoutVarianceDoNotMove) {
  constexpr std::size_t kValues = 400;
  const Quadratic problem = quadratic(kValues, 2);
  const Floats start = test_values::normals(kValues, 13);
  Federation run({.variance_floor = 1e-3, .freeze_round = 3, .two_sided = GetParam()}, start, {1, 1}, 256);
  while (run.round < 20) run.step(0.1, problem.gradients(run.model, run.round));
  for (std::size_t i = 0; i < kValues; ++i) {
    EXPECT_TRUE(std::isfinite(run.model[i]));
    EXPECT_EQ(run.model[i] == start[i], i % 10 == 3) << i;
    EXPECT_TRUE(run.variance[i] == 0 || run.variance[i] >= 1e-3F);
  }
}

// A bit a value up, and down when two-sided, from the freeze on.
TEST_P(OnebitAdamModes, SendsABitAValueFromTheFreezeOn) {
  const Quadratic problem = quadratic(25'600, 2);
  Federation run({.freeze_round = 1, .two_sided = GetParam()}, Floats(25'600, 0.5F), {1, 1}, 25'600);
  run.step(0.1, problem.gradients(run.model, 0));
  EXPECT_EQ(run.bytes_up, 2U * 4 * 25'600);
  EXPECT_EQ(run.bytes_down, 4U * 25'600);
  run.bytes_up = run.bytes_down = 0;
  run.step(0.1, problem.gradients(run.model, 1));
  EXPECT_EQ(run.bytes_up, 2U * (8 + 4 * 100 + 25'600 / 8));
  EXPECT_EQ(run.bytes_down, GetParam() ? 8 + 4 * 100 + 25'600 / 8 : 4U * 25'600);
}

TEST_P(OnebitAdamModes, RefusesAMeanBeyondItsBoundAndChangesNothing) {
  const OnebitAdam adam = OnebitAdam::make({.freeze_round = 2, .two_sided = GetParam()}).value();
  for (const std::uint64_t round : {0U, 5U}) {
    for (const float poison : {std::numeric_limits<float>::quiet_NaN(), HUGE_VALF, -0x1.1p62F}) {
      Floats momentum(300, 1.0F), variance(300, 2.0F), residual(GetParam() ? 300 : 0, 3.0F), model(300, 4.0F),
          mean(300, 5.0F);
      mean[299] = poison;
      Buffer out(adam.downward(round).encoded_bytes_max(300));
      const auto refused = adam.step({round, momentum, variance, residual}, 0.1, mean, model, out.span(), 1'000);
      ASSERT_FALSE(refused.ok());
      EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
      EXPECT_THAT(refused.error().message, HasSubstr("the mean of value 1299 is "));
      EXPECT_EQ(model, Floats(300, 4.0F));
      EXPECT_EQ(momentum, Floats(300, 1.0F));
      EXPECT_EQ(variance, Floats(300, 2.0F));
      EXPECT_EQ(residual, Floats(residual.size(), 3.0F));
    }
  }
}

TEST(OnebitAdam, GreatestMeansStayFinite) {
  const OnebitAdam adam = OnebitAdam::make({.eps = 1e-12, .freeze_round = 50}).value();
  Floats momentum(64, 0.0F), variance(64, 0.0F), model(64, 1.0F);
  for (std::uint64_t round = 0; round < 60; ++round) {
    const Floats mean(64, round % 3 == 0 ? -OnebitAdam::kMeanMax : OnebitAdam::kMeanMax);
    ASSERT_TRUE(adam.step({round, momentum, variance, {}}, 1.0, mean, model, {}).ok());
  }
  EXPECT_TRUE(std::isfinite(momentum[63]) && std::isfinite(variance[63]) && std::isfinite(model[63]));
}

TEST(OnebitAdam, ApplyMovesACopyToTheServersBits) {
  const Quadratic problem = quadratic(500, 2);
  Federation run({.freeze_round = 2}, test_values::normals(500, 14), {1, 1}, 256);
  for (int i = 0; i < 2; ++i) run.step(0.1, problem.gradients(run.model, run.round));
  Floats copy = run.model;
  for (int i = 0; i < 5; ++i) {
    run.step(0.1, problem.gradients(run.model, run.round));
    run.adam.apply(0.1, run.sites[1].momentum, run.variance, copy);
    EXPECT_EQ(test_values::bits_of(copy), test_values::bits_of(run.model));
  }
}

TEST(OnebitAdam, RefusesOptionsOutOfRange) {
  const auto message = [](const OnebitAdamOptions& options) { return OnebitAdam::make(options).error().message; };
  EXPECT_THAT(message({.beta1 = 1}), HasSubstr("a beta is 1, expected at least 0 and below 1"));
  EXPECT_THAT(message({.beta2 = -0.1}), HasSubstr("a beta is -0.1"));
  EXPECT_THAT(message({.eps = 0}), HasSubstr("eps is 0, expected 1e-12 to 1"));
  EXPECT_THAT(message({.variance_floor = -1}), HasSubstr("variance_floor is -1"));
  EXPECT_THAT(message({.freeze_round = 0}), HasSubstr("freeze_round is 0, expected at least 1"));
  EXPECT_THAT(message({.block_values = 64}), HasSubstr("block is 64, expected 128 to 2048"));
}

}  // namespace
}  // namespace fluvial::kernels

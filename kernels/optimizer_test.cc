#include "kernels/optimizer.h"

#include <gtest/gtest.h>

#include "kernels/test_values.h"
#include "kernels/vector.h"

namespace fluvial::kernels {
namespace {

constexpr AdaptiveRule kRules[] = {AdaptiveRule::kAdagrad, AdaptiveRule::kAdam, AdaptiveRule::kYogi};

struct Vectors {
  std::vector<float> mean, moment, variance, model;
};

Vectors some_vectors(std::size_t size, std::uint64_t seed) {
  Vectors v{.mean = test_values::adversarial(size, seed, 1e9F),
            .moment = test_values::normals(size, seed + 1),
            .variance = test_values::adversarial(size, seed + 2, 1e12F),
            .model = test_values::normals(size, seed + 3)};
  for (float& value : v.variance) value = std::fabs(value);
  for (std::size_t i = 0; i < size; i += 3) v.mean[i] = 0.01F * v.moment[i];
  return v;
}

// Everything that one call changes, as bits.
std::vector<std::uint32_t> bits_of(const Vectors& v) {
  std::vector<std::uint32_t> bits = test_values::bits_of(v.moment);
  for (const auto* more : {&v.variance, &v.model}) {
    const auto add = test_values::bits_of(*more);
    bits.insert(bits.end(), add.begin(), add.end());
  }
  return bits;
}

TEST(Optimizers, AdaptiveRulesAreWhatTheHeaderSaysOnEveryTarget) {
  const AdaptiveOptions o{.lr = 0.03, .beta1 = 0.9, .beta2 = 0.99, .tau = 1e-3};
  const auto lr = static_cast<float>(0.03);
  const auto b1 = static_cast<float>(0.9);
  const auto c1 = static_cast<float>(1 - 0.9);
  const auto b2 = static_cast<float>(0.99);
  const auto c2 = static_cast<float>(1 - 0.99);
  const auto tau = static_cast<float>(1e-3);
  for (const std::size_t size : {0U, 1U, 15U, 16U, 1'003U}) {
    for (const AdaptiveRule rule : kRules) {
      const Vectors before = some_vectors(size, 50 + size);
      Vectors expected = before;
      for (std::size_t i = 0; i < size; ++i) {
        const float d = before.mean[i];
        float& m = expected.moment[i];
        float& v = expected.variance[i];
        const float kept = b1 * m;
        const float added = c1 * d;
        m = kept + added;
        const float square = d * d;
        const float part = c2 * square;
        if (rule == AdaptiveRule::kAdagrad) v = v + square;
        if (rule == AdaptiveRule::kAdam) {
          const float kept_v = b2 * v;
          v = kept_v + part;
        }
        if (rule == AdaptiveRule::kYogi && v != square) v = v > square ? v - part : v + part;
        const float denominator = std::sqrt(v) + tau;
        const float step = lr * (m / denominator);
        expected.model[i] -= step;
      }
      for (const cpu::Target target : cpu::supported_targets()) {
        Vectors got = before;
        apply_adaptive(rule, o, got.mean, got.moment, got.variance, got.model, target);
        ASSERT_EQ(bits_of(got), bits_of(expected)) << cpu::target_name(target) << ", " << size;
      }
    }
  }
}

TEST(Optimizers, SignsgdStepsByTheRateAlone) {
  Vectors before = some_vectors(1'003, 90);
  before.mean[0] = 0;
  before.mean[1] = -0.0F;
  before.mean[2] = 0x1p-149F;
  before.mean[3] = -0x1p127F;
  for (const cpu::Target target : cpu::supported_targets()) {
    Vectors got = before;
    apply_signsgd(0.3, got.mean, got.model, target);
    for (std::size_t i = 0; i < got.model.size(); ++i) {
      const double way = before.mean[i] > 0 ? 0.3 : before.mean[i] < 0 ? -0.3 : 0;
      ASSERT_EQ(got.model[i], static_cast<float>(static_cast<double>(before.model[i]) - way)) << i;
    }
  }
}

// The buffer is in the variance's place.
TEST(Optimizers, DelayedNesterovIsWhatTheHeaderSaysOnEveryTarget) {
  const auto wide = [](float value) { return static_cast<double>(value); };
  for (const std::size_t size : {0U, 1U, 15U, 16U, 1'003U}) {
    const Vectors first = some_vectors(size, 60 + size);
    DelayedNesterovOptions o{.lr = 0.7, .momentum = 0.9, .every = 3, .c = 0.2};
    const double third = 1.0 / 3.0;
    const double between = 0.2 * 0.9;
    const double nth = (1.0 - 0.2 * 3.0 + 0.2) * 0.9;
    Vectors expected = first;
    std::vector<Vectors> got(cpu::supported_targets().size(), first);
    for (o.step = 1; o.step <= 7; ++o.step) {
      for (std::size_t i = 0; i < size; ++i) {
        const float d = expected.mean[i];
        float& m = expected.moment[i];
        float& b = expected.variance[i];
        b = b + d;
        if (o.step == 3 || o.step == 6) m = static_cast<float>(0.9 * wide(m) + third * wide(b));
        if (o.step == 3 || o.step == 6) b = 0;
        const double look = (o.step == 3 || o.step == 6 ? nth : between) * wide(m);
        const double move = third * wide(d) + look;
        expected.model[i] = static_cast<float>(wide(expected.model[i]) - 0.7 * move);
      }
      for (std::size_t t = 0; t < got.size(); ++t) {
        const cpu::Target target = cpu::supported_targets()[t];
        apply_delayed_nesterov(o, got[t].mean, got[t].moment, got[t].variance, got[t].model, target);
        ASSERT_EQ(bits_of(got[t]), bits_of(expected)) << cpu::target_name(target) << ", " << size << ", " << o.step;
      }
    }
  }
}

TEST(Optimizers, DelayedByOneIsNesterovBitForBit) {
  Vectors plain = some_vectors(4'099, 70);
  plain.variance.assign(plain.mean.size(), 0.0F);
  Vectors delayed = plain;
  for (std::uint64_t step = 1; step <= 9; ++step) {
    plain.mean = delayed.mean = test_values::adversarial(4'099, 70 + step, 1e6F);
    apply_nesterov(0.7, 0.9, plain.mean, plain.moment, plain.model);
    apply_delayed_nesterov({.lr = 0.7, .momentum = 0.9, .every = 1, .step = step}, delayed.mean, delayed.moment,
                           delayed.variance, delayed.model);
    for (Vectors* v : {&plain, &delayed}) {
      for (float& m : v->moment) m += 0.0F;  // -0 becomes +0
    }
    ASSERT_EQ(bits_of(delayed), bits_of(plain)) << step;
  }
}

TEST(Optimizers, TheOthersAgreeBitForBitOnEveryTarget) {
  const LambOptions lamb{.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-6, .weight_decay = 0.01, .step = 3};
  for (const std::size_t size : {0U, 1U, 15U, 16U, 255U, 257U, 4'099U}) {
    const Vectors before = some_vectors(size, size);
    std::vector<std::uint32_t> expected[3];
    SquareLanes expected_lanes{};
    for (const cpu::Target target : cpu::supported_targets()) {
      Vectors a = before, b = before, c = before;
      SquareLanes lanes{};
      lanes[3] = 0.5;
      add_lamb_squares(lamb, before.mean, before.moment, before.variance, before.model, lanes, target);
      add_squares(before.mean, lanes, target);
      apply_nesterov(0.7, 0.9, a.mean, a.moment, a.model, target);
      apply_lars(0.9, 0.25, 0.01, b.mean, b.moment, b.model, target);
      apply_lamb(lamb, 0.125, c.mean, c.moment, c.variance, c.model, target);
      if (target == cpu::Target::kBaseline) {
        expected[0] = bits_of(a), expected[1] = bits_of(b), expected[2] = bits_of(c);
        expected_lanes = lanes;
      }
      ASSERT_EQ(bits_of(a), expected[0]) << cpu::target_name(target);
      ASSERT_EQ(bits_of(b), expected[1]) << cpu::target_name(target);
      ASSERT_EQ(bits_of(c), expected[2]) << cpu::target_name(target);
      ASSERT_EQ(lanes, expected_lanes) << cpu::target_name(target);
    }
  }
}

// LAMB measures the norm of the same direction that its step takes.
TEST(Optimizers, LambMeasuresTheStepThatItTakes) {
  const LambOptions lamb{.weight_decay = 0.1, .step = 7};
  Vectors v = some_vectors(1'000, 90);
  v.mean = test_values::normals(1'000, 91);
  v.variance.assign(1'000, 0.5F);
  SquareLanes lanes{};
  add_lamb_squares(lamb, v.mean, v.moment, v.variance, v.model, lanes);
  const std::vector<float> before = v.model;
  apply_lamb(lamb, 1.0, v.mean, v.moment, v.variance, v.model);
  double squares = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    squares += std::pow(static_cast<double>(before[i]) - static_cast<double>(v.model[i]), 2);
  }
  EXPECT_NEAR(sum_of(lanes), squares, 1e-5 * squares);
  EXPECT_GT(squares, 1);
}

// The first step of LAMB: the corrections undo the factors 1 - beta, so m / sqrt(v) is the sign of D.
TEST(Optimizers, LambCorrectsTheBias) {
  std::vector<float> mean = {3.0F, -0.001F}, moment(2, 0.0F), variance(2, 0.0F), model(2, 0.0F);
  apply_lamb({.epsilon = 1e-12}, 1.0, mean, moment, variance, model);
  EXPECT_NEAR(model[0], -1.0, 1e-6);
  EXPECT_NEAR(model[1], 1.0, 1e-6);
}

TEST(Optimizers, AVarianceBeyondFp32StopsTheStep) {
  std::vector<float> mean = {1e30F}, moment(1, 0.0F), variance(1, 1.0F), model(1, 5.0F);
  apply_adaptive(AdaptiveRule::kAdam, {}, mean, moment, variance, model);
  EXPECT_TRUE(std::isinf(variance[0])) << "as the header says";
  EXPECT_EQ(model[0], 5.0F);
}

TEST(Optimizers, SquaresAreTheScreenedNorm) {
  const auto values = test_values::normals(5'000, 3);
  SquareLanes lanes{};
  add_squares(values, lanes);
  EXPECT_EQ(sum_of(lanes), screen(values)->norm_squared);
}

}  // namespace
}  // namespace fluvial::kernels

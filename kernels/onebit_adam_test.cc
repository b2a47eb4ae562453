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

// What a test says; the codec and the root make the same of it.
struct AdamSetup {
  OnebitAdamOptions options;
  std::uint64_t chunk_values = 256;
  cpu::Target target = cpu::best_target();

  std::unique_ptr<Codec> codec() const {
    return make_codec({.kind = CodecKind::kOnebitAdam,
                       .block_values = options.block_values,
                       .freeze_rounds = options.freeze_rounds,
                       .beta1 = options.beta1},
                      target)
        .value();
  }
};

// Sites and a root that send each other bytes, chunk by chunk.
struct Federation {
  struct Site {
    Floats residual;
    Buffer lent;
    std::uint32_t weight;
    bool late = false;  // in this round: what it sends does not arrive
  };

  std::unique_ptr<Codec> codec;
  OnebitAdam adam;
  VectorSchema schema;
  Floats model, moment, variance;
  Buffer momentum;  // as it came down
  std::vector<Site> sites;
  std::uint64_t round = 0;
  std::size_t bytes_up = 0;

  Federation(const AdamSetup& setup, Floats start, const std::vector<std::uint32_t>& weights)
      : codec(setup.codec()),
        adam(OnebitAdam::make(setup.options, setup.target).value()),
        schema{.layout = {.value_count = start.size(), .chunk_values = setup.chunk_values}, .tensors = {}},
        model(std::move(start)),
        moment(model.size(), 0.0F),
        variance(model.size(), 0.0F) {
    for (const std::uint32_t weight : weights) {
      Site& site = sites.emplace_back(Site{Floats(model.size(), 0.0F), Buffer(codec->state_bytes(schema)), weight});
      std::ranges::fill(site.lent.span(), std::byte{0});
    }
  }

  void send(Site& site, std::span<const float> update, std::span<std::int64_t> sum) {
    const StreamKey key{.run = 1, .round = round, .site = 2};
    for (std::size_t i = 0; i < schema.layout.chunk_count(); ++i) {
      const auto chunk = schema.layout.of(std::span(site.residual), i);
      ASSERT_TRUE(codec->lend_chunk(schema, key, i, momentum.span(), chunk, site.lent.span()).ok());
    }
    Floats p(model.size());
    ASSERT_TRUE(codec->fold(schema, update, site.residual, site.lent.span(), p).ok());
    const EncodePlan plan = codec->prepare(schema, p, key, {}, site.lent.span(), {}).value();
    site.residual = p;
    if (site.late) return;
    for (std::size_t i = 0; i < schema.layout.chunk_count(); ++i) {
      const auto chunk = schema.layout.of(std::span<const float>(p), i);
      Buffer bytes(codec->encoded_bytes_max(chunk.size()));
      const auto left = schema.layout.of(std::span(site.residual), i);
      bytes.shrink(codec->encode_residual_chunk(plan, i, chunk, bytes.span(), left).value());
      bytes_up += bytes.size();
      const auto to = schema.layout.of(sum, i);
      ASSERT_TRUE(codec->decode_accumulate_chunk(bytes.span(), site.weight, kScaleBits, to).ok());
      ASSERT_TRUE(codec->settle_chunk(schema, i, bytes.span(), site.lent.span()).ok());
    }
  }

  void step(double lr, const std::vector<Floats>& updates) {
    ++round;
    std::vector<std::int64_t> sum(model.size(), 0);
    std::uint64_t total = 0;
    for (std::size_t k = 0; k < sites.size(); ++k) {
      send(sites[k], updates[k], sum);
      total += sites[k].late ? 0 : sites[k].weight;
    }
    Floats mean(model.size());
    mean_of_sums(sum, kScaleBits, total, mean);
    const ChunkLayout& layout = schema.layout;
    const MomentumLayout handed = adam.momentum(layout);
    momentum = Buffer(adam.hands_down(round) ? handed.bytes() : 0);
    for (std::size_t i = 0; i < layout.chunk_count(); ++i) {
      const MutableByteSpan out =
          momentum.size() == 0 ? MutableByteSpan() : handed.chunk(MutableByteSpan(momentum.span()), i);
      const Status stepped =
          adam.step(round, lr, layout.of(std::span<const float>(mean), i), layout.of(std::span(moment), i),
                    layout.of(std::span(variance), i), layout.of(std::span(model), i), out, layout.first_value(i));
      ASSERT_TRUE(stepped.ok()) << stepped.error().message;
    }
  }

  // As the sites know it.
  Floats known_momentum() const {
    Floats values(model.size());
    const auto sign = test_values::codec_of("sign:block=" + std::to_string(codec->spec().block_values));
    const MomentumLayout handed = adam.momentum(schema.layout);
    for (std::size_t i = 0; i < schema.layout.chunk_count(); ++i) {
      const ByteSpan chunk = handed.chunk(ByteSpan(momentum.span()), i).first(handed.encoded(i));
      EXPECT_TRUE(sign->decode_chunk(chunk, schema.layout.of(std::span(values), i)).ok());
    }
    return values;
  }
};

// Updates of a noisy quadratic: curvature * (model - target_k) + noise.
struct Quadratic {
  Floats curvature, target;
  std::size_t sites;
  float noise;
  float spread;  // between the targets of neighbouring sites

  std::vector<Floats> updates(std::span<const float> at, std::uint64_t round) const {
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

// Tens of rounds against an oracle in fp64 that rounds nothing, and whose sites send what the paper's send.
TEST(OnebitAdam, FollowsTheReference) {
  constexpr std::size_t kValues = 700;
  const AdamSetup setup{.options = {.tau = 1e-3, .freeze_rounds = 15}, .chunk_values = 512};
  const Quadratic problem = quadratic(kValues, 3);
  Floats start = test_values::normals(kValues, 9, 3.0F);
  reference::OnebitAdam expected(reference::OnebitAdam::Vector(start.begin(), start.end()), 3);
  expected.freeze_rounds = setup.options.freeze_rounds;
  expected.tau = setup.options.tau;
  Federation actual(setup, start, {3, 1, 7});
  while (actual.round < 60) {
    const auto updates = problem.updates(actual.model, actual.round);
    const double lr = 0.01 / (1.0 + 0.05 * static_cast<double>(actual.round));
    actual.step(lr, updates);
    // The codec's blocks begin at chunks: 512 is a multiple of them, so the oracle needs no chunks.
    expected.step(lr, wide(updates), {3, 1, 7});
    const bool frozen = actual.round >= setup.options.freeze_rounds;
    const Floats momentum = frozen ? actual.known_momentum() : actual.moment;
    for (std::size_t i = 0; i < kValues; ++i) {
      ASSERT_NEAR(static_cast<double>(momentum[i]), expected.momentum[i], 2e-5) << actual.round << " " << i;
      ASSERT_NEAR(static_cast<double>(actual.variance[i]), expected.variance[i], 1e-5 * expected.variance[i]);
      ASSERT_NEAR(static_cast<double>(actual.model[i]), expected.model[i], 2e-4) << actual.round << " " << i;
      if (frozen) {
        ASSERT_NEAR(static_cast<double>(actual.moment[i]), expected.server_residual[i], 2e-5);
      }
    }
    for (std::size_t k = 0; k < 3; ++k) {
      for (std::size_t i = 0; i < kValues; ++i) {
        const double of_paper = 0.1 * static_cast<double>(actual.sites[k].residual[i]);
        ASSERT_NEAR(of_paper, expected.site_residual[k][i], 1e-5 * (2 + std::fabs(expected.site_residual[k][i])));
      }
    }
  }
}

TEST(OnebitAdam, ConvergesAsAdamDoes) {
  constexpr std::size_t kValues = 500;
  constexpr std::uint64_t kRounds = 1'500;
  const Quadratic problem = quadratic(kValues, 4);
  const Floats start = test_values::normals(kValues, 10, 4.0F);
  const auto run = [&](std::uint32_t freeze_rounds, bool feedback) {
    Federation federation({.options = {.beta2 = 0.99, .freeze_rounds = freeze_rounds}}, start, {1, 1, 1, 1});
    while (federation.round < kRounds) {
      const double left = 1.0 - static_cast<double>(federation.round) / static_cast<double>(kRounds);
      federation.step(0.1 * left, problem.updates(federation.model, federation.round));
      if (feedback) continue;
      for (auto& site : federation.sites) std::ranges::fill(site.residual, 0.0F);
      if (federation.round >= freeze_rounds) std::ranges::fill(federation.moment, 0.0F);
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

// What a late site was lent goes back: its residual has its own updates alone, and never grows by momentum.
TEST(OnebitAdam, WhoIsLateGivesBackWhatItWasLent) {
  constexpr std::size_t kValues = 300;
  const Quadratic problem = quadratic(kValues, 3);
  Federation run({.options = {.freeze_rounds = 3}}, test_values::normals(kValues, 15), {1, 1, 1});
  while (run.round < 5) run.step(0.01, problem.updates(run.model, run.round));
  Floats own = run.sites[1].residual;  // what it has not sent of its own
  for (int i = 0; i < 20; ++i) {
    run.sites[1].late = true;
    const auto updates = problem.updates(run.model, run.round);
    run.step(0.01, updates);
    for (std::size_t k = 0; k < kValues; ++k) own[k] += updates[1][k];
  }
  const std::span<const float> lent(reinterpret_cast<const float*>(run.sites[1].lent.data()), kValues);  // NOLINT
  for (std::size_t k = 0; k < kValues; ++k) {
    ASSERT_NEAR(static_cast<double>(run.sites[1].residual[k] - lent[k]), static_cast<double>(own[k]), 1e-3) << k;
  }
}

TEST(OnebitAdam, GivesTheSameBitsOnEveryTargetAndInAnyChunks) {
  constexpr std::size_t kValues = 1'000;
  const Quadratic problem = quadratic(kValues, 2);
  std::vector<std::uint32_t> expected;
  for (const cpu::Target target : cpu::supported_targets()) {
    for (const std::uint64_t chunk_values : {128U, 384U, 4'096U}) {
      Federation run({{.freeze_rounds = 4, .block_values = 128}, chunk_values, target},
                     test_values::normals(kValues, 12), {5, 2});
      while (run.round < 10) run.step(0.02, problem.updates(run.model, run.round));
      auto bits = test_values::bits_of(run.model);
      for (const Floats& more : {run.known_momentum(), run.moment, run.sites[1].residual}) {
        for (const std::uint32_t m : test_values::bits_of(more)) bits.push_back(m);
      }
      if (expected.empty()) expected = bits;
      ASSERT_TRUE(bits == expected) << cpu::target_name(target) << ", chunks of " << chunk_values;
    }
  }
}

TEST(OnebitAdam, CoordinatesWithoutVarianceDoNotMove) {
  constexpr std::size_t kValues = 400;
  const Quadratic problem = quadratic(kValues, 2);
  const Floats start = test_values::normals(kValues, 13);
  Federation run({.options = {.freeze_rounds = 3}}, start, {1, 1});
  while (run.round < 20) run.step(0.1, problem.updates(run.model, run.round));
  for (std::size_t i = 0; i < kValues; ++i) {
    EXPECT_TRUE(std::isfinite(run.model[i]));
    EXPECT_EQ(run.model[i] == start[i], i % 10 == 3) << i;
  }
}

// A bit a value in both directions from the freeze on, and nothing beside the model before.
TEST(OnebitAdam, SendsABitAValueFromTheFreezeOn) {
  constexpr std::size_t kValues = 25'600;
  constexpr std::size_t kEncoded = 8 + 4 * 100 + kValues / 8;
  const Quadratic problem = quadratic(kValues, 2);
  Federation run({.options = {.freeze_rounds = 2}, .chunk_values = kValues}, Floats(kValues, 0.5F), {1, 1});
  run.step(0.1, problem.updates(run.model, 0));
  EXPECT_EQ(run.momentum.size(), 0U);
  run.step(0.1, problem.updates(run.model, 1));
  EXPECT_EQ(run.bytes_up, 2U * 2 * 4 * kValues);
  EXPECT_EQ(run.momentum.size(), kEncoded);
  run.bytes_up = 0;
  run.step(0.1, problem.updates(run.model, 2));
  EXPECT_EQ(run.bytes_up, 2U * kEncoded);
  EXPECT_EQ(run.momentum.size(), kEncoded);
}

// One momentum has one text, whatever was in the memory before.
TEST(OnebitAdam, BehindAChunkThereAreZeros) {
  const OnebitAdam adam = OnebitAdam::make({.freeze_rounds = 1, .block_values = 128}).value();
  Floats mean(10, 0.5F), moment(10), variance(10), model(10);
  Buffer handed(16);  // 8, a scale, two bytes of bits
  for (const std::uint64_t round : {1U, 2U}) {
    std::ranges::fill(handed.span(), std::byte{0xff});
    ASSERT_TRUE(adam.step(round, 0.1, mean, moment, variance, model, handed.span()).ok());
    EXPECT_EQ(load_le<std::uint16_t>(handed.data() + 14), 0) << round;
  }
}

TEST(OnebitAdam, RefusesAMeanBeyondItsBoundAndChangesNothing) {
  const OnebitAdam adam = OnebitAdam::make({.freeze_rounds = 2}).value();
  for (const std::uint64_t round : {1U, 2U, 5U}) {
    for (const float poison : {std::numeric_limits<float>::quiet_NaN(), HUGE_VALF, -0x1.1p62F}) {
      Floats moment(300, 1.0F), variance(300, 2.0F), model(300, 4.0F), mean(300, 5.0F);
      mean[299] = poison;
      Buffer out(adam.momentum({300, 300}).bytes());
      const Status refused = adam.step(round, 0.1, mean, moment, variance, model, out.span(), 1'000);
      ASSERT_FALSE(refused.ok());
      EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
      EXPECT_THAT(refused.error().message, HasSubstr("the mean of value 1299 is "));
      EXPECT_EQ(model, Floats(300, 4.0F));
      EXPECT_EQ(moment, Floats(300, 1.0F));
      EXPECT_EQ(variance, Floats(300, 2.0F));
    }
  }
}

TEST(OnebitAdam, GreatestMeansStayFinite) {
  const OnebitAdam adam = OnebitAdam::make({.tau = 1e-12, .freeze_rounds = 50}).value();
  Floats moment(64, 0.0F), variance(64, 0.0F), model(64, 1.0F);
  Buffer out(adam.momentum({64, 64}).bytes());
  for (std::uint64_t round = 1; round <= 60; ++round) {
    const Floats mean(64, round % 3 == 0 ? -OnebitAdam::kMeanMax : OnebitAdam::kMeanMax);
    ASSERT_TRUE(adam.step(round, 1.0, mean, moment, variance, model, out.span()).ok());
  }
  EXPECT_TRUE(std::isfinite(moment[63]) && std::isfinite(variance[63]) && std::isfinite(model[63]));
}

// Who has the momentum of the round, and of none before the freeze: whatever else a parent hands down is refused, and
// nothing is changed.
TEST(OnebitAdam, ASiteTakesTheMomentumOfItsRoundAndNothingElse) {
  const auto codec = test_values::codec_of("onebit_adam:freeze=3,block=128");
  const VectorSchema schema{.layout = {.value_count = 300, .chunk_values = 200}, .tensors = {}};
  EXPECT_EQ(codec->handed_bytes(schema, 2), 0U);
  Buffer momentum(codec->handed_bytes(schema, 3)), lent(codec->state_bytes(schema));
  EXPECT_EQ(momentum.size(), 44U + 24 + 4);  // 8 + 2 scales + 25 bytes, and 8 + 1 scale + 13, each to a multiple of 4
  std::ranges::fill(momentum.span(), std::byte{0});
  std::ranges::fill(lent.span(), std::byte{0});
  Floats residual(300, 1.0F);
  const auto message = [&](std::uint64_t round, ByteSpan handed) {
    const auto chunk = schema.layout.of(std::span(residual), 0);
    const Status lends = codec->lend_chunk(schema, {.round = round}, 0, handed, chunk, lent.span());
    return lends.ok() ? std::string() : lends.error().message;
  };
  EXPECT_EQ(message(3, {}), "");
  EXPECT_THAT(message(3, momentum.span()), HasSubstr("round 3 begins with a momentum of "));
  EXPECT_THAT(message(4, {}), HasSubstr("round 4 begins with a momentum of 0 bytes, expected "));
  EXPECT_THAT(message(4, momentum.span()), HasSubstr("sign chunk"));  // zeros have no version
  EXPECT_EQ(message(0, {}), "") << "an update that no round takes";
  EXPECT_EQ(residual, Floats(300, 1.0F));
}

TEST(OnebitAdam, RefusesOptionsOutOfRange) {
  const auto message = [](const OnebitAdamOptions& options) { return OnebitAdam::make(options).error().message; };
  EXPECT_THAT(message({.beta1 = 1}), HasSubstr("a beta is 1, expected at least 0 and below 1"));
  EXPECT_THAT(message({.beta2 = -0.1}), HasSubstr("a beta is -0.1"));
  EXPECT_THAT(message({.tau = 0}), HasSubstr("tau is 0, expected 1e-12 to 1e12"));
  EXPECT_THAT(message({.block_values = 64}), HasSubstr("block is 64, expected 128 to 2048"));
  EXPECT_EQ(to_string(parse_codec("onebit_adam").value()), "onebit_adam:freeze=100,beta1=0.9,block=256");
  for (const char* text : {"onebit_adam:beta1=1", "onebit_adam:freeze=-1", "onebit_adam:block=100"}) {
    EXPECT_FALSE(parse_codec(text).ok()) << text;
  }
}

}  // namespace
}  // namespace fluvial::kernels

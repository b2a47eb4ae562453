// 1-bit Adam as the services do it, chunk by chunk, against the oracle's loops: the same bits in every round.
#include "simulator/checks/onebit.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/aggregate/server_optimizer.h"
#include "core/aggregate/shapes.h"
#include "core/base/rng.h"
#include "kernels/codec.h"
#include "simulator/checks/optimizer.h"

namespace fluvial::simulator {
namespace {

using Values = std::vector<float>;

class OnebitTest : public testing::TestWithParam<std::string> {
 protected:
  OnebitTest()
      : schema_(*round::Schema::make({{"w", round::DType::kF32, {24, 20}},
                                      {"steps", round::DType::kI64, {2}},
                                      {"b", round::DType::kF32, {221}}})),
        shapes_(schema_, 200),
        codec_(*kernels::make_codec(*kernels::parse_codec(GetParam()))) {
    plan_.codec = GetParam();
    plan_.chunk_values = 200;
    plan_.optimizer.kind = round::Optimizer::kOnebitAdam;
    plan_.optimizer.beta2 = 0.95;
    onebit_ = Onebit::of(plan_);
  }

  const kernels::ChunkLayout& layout() const { return shapes_.layout(); }
  std::size_t count() const { return static_cast<std::size_t>(schema_.value_count()); }
  // Some of its values are 0 in each round.
  Values vector(std::uint64_t seed, float scale) const {
    Rng rng(seed);
    Values out(count());
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = i % 7 == 3 ? 0 : scale * static_cast<float>(rng.uniform() - 0.5);
    return out;
  }
  // The services' step: what it hands down.
  Buffer step(std::uint64_t round, const Values& mean, Values& state, Values& model) const {
    const aggregate::ServerStep step(plan_.optimizer, layout(), aggregate::layers_of(schema_, plan_.optimizer), round,
                                     1, codec_->spec());
    Buffer handed(step.handed_bytes());
    for (std::size_t i = 0; i < layout().chunk_count(); ++i) {
      const std::span<const float> of_mean = layout().of(std::span<const float>(mean), i);
      EXPECT_TRUE(step.apply(i, of_mean, state, layout().of(std::span<float>(model), i), handed.span()).ok());
    }
    return handed;
  }
  // What a site sends of p.
  Values sent(std::uint64_t round, const Values& p) const {
    Buffer state(codec_->state_bytes(shapes_.schema()));
    std::ranges::fill(state.span(), std::byte{0});
    const auto plan = codec_->prepare(shapes_.schema(), p, {1, round, 1}, {}, state.span(), {});
    Values out(p.size());
    Buffer bytes(codec_->encoded_bytes_max(static_cast<std::size_t>(layout().chunk_values)));
    for (std::size_t i = 0; i < layout().chunk_count(); ++i) {
      const auto size = codec_->encode_chunk(*plan, i, layout().of(std::span<const float>(p), i), bytes.span());
      EXPECT_TRUE(codec_->decode_chunk(bytes.span().first(*size), layout().of(std::span<float>(out), i)).ok());
    }
    return out;
  }

  round::Schema schema_;
  aggregate::Shapes shapes_;
  std::unique_ptr<kernels::Codec> codec_;
  round::Plan plan_;
  std::optional<Onebit> onebit_;
};

TEST_P(OnebitTest, EachRoundHasTheSameBits) {
  Values model = vector(1, 1);
  OptimizerState own = first_state(plan_.optimizer, model);
  Values state = aggregate::initial_state(plan_.optimizer, count());
  for (std::uint64_t round = 1; round <= 6; ++round) {
    const Values mean = vector(10 + round, 0.1F);
    const Buffer handed = step(round, mean, state, model);
    Step made = optimizer_step(plan_, schema_, round, 1, mean, own);
    own = std::move(made.next);
    EXPECT_EQ(own.model, model) << "round " << round;
    EXPECT_TRUE(std::ranges::equal(own.moment, std::span(state).first(count())));
    EXPECT_TRUE(std::ranges::equal(own.variance, std::span(state).last(count())));
    ASSERT_EQ(made.momentum.has_value(), handed.size() > 0);
    if (!made.momentum) continue;
    EXPECT_TRUE(std::ranges::equal(made.momentum->bytes, handed.span()));
    Values residual(count(), 0);
    Buffer record(codec_->state_bytes(shapes_.schema()));
    std::ranges::fill(record.span(), std::byte{0});
    const kernels::ChunkLayout& layout = shapes_.layout();
    for (std::size_t i = 0; i < layout.chunk_count(); ++i) {
      const std::span<float> chunk = layout.of(std::span(residual), i);
      const kernels::StreamKey key{1, round + 1, 1};
      ASSERT_TRUE(codec_->lend_chunk(shapes_.schema(), key, i, handed.span(), chunk, record.span()).ok());
    }
    EXPECT_EQ(onebit_->lent(made.momentum->values), residual);
  }
}

TEST_P(OnebitTest, WhatASiteSendsIsPInTheWarmUpAndItsSignsAfterwards) {
  for (std::uint64_t round = 1; round <= 4; ++round) {
    const Values p = vector(30 + round, 2);
    EXPECT_EQ(onebit_->sent(RoundId(round), p), sent(round, p)) << "round " << round;
    EXPECT_EQ(onebit_->sent(RoundId(round), p) == p, onebit_->warms_up(RoundId(round)));
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, OnebitTest,
                         testing::Values("onebit_adam:freeze=1", "onebit_adam:freeze=3,beta1=0.5,block=128",
                                         "onebit_adam:freeze=0"));

TEST(Onebit, IsNoOtherCodecsAndHasDefaults) {
  round::Plan plan;
  plan.codec = "sign:block=128";
  EXPECT_FALSE(Onebit::of(plan));
  plan.codec = "onebit_adam";
  EXPECT_TRUE(Onebit::of(plan)->warms_up(RoundId(100)));
  EXPECT_FALSE(Onebit::of(plan)->warms_up(RoundId(101)));
}

}  // namespace
}  // namespace fluvial::simulator

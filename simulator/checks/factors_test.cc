// The codec's arithmetic against the oracle's, over rounds of two passes; and that the oracle sees what is wrong.
#include "simulator/checks/factors.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/aggregate/shapes.h"
#include "core/base/rng.h"
#include "kernels/codec.h"

namespace fluvial::simulator {
namespace {

using Values = std::vector<float>;

class FactorsTest : public testing::TestWithParam<std::string> {
 protected:
  FactorsTest()
      : schema_(*round::Schema::make({{"w", round::DType::kF32, {24, 20}},
                                      {"b", round::DType::kF32, {7}},
                                      {"steps", round::DType::kI64, {2}},
                                      {"kernel", round::DType::kF32, {16, 3, 6}},
                                      {"small", round::DType::kF32, {2, 9}}})),
        shapes_(schema_, 100),
        codec_(*kernels::make_codec(*kernels::parse_codec(GetParam()))),
        state_(codec_->state_bytes(shapes_.schema())),
        workspace_(codec_->workspace_bytes(shapes_.schema())) {
    plan_.codec = GetParam();
    plan_.seed = 11;
    plan_.value_abs_max = 1e6;
    std::ranges::fill(state_.span(), std::byte{0});
    factors_ = Factors::of(plan_, schema_);
  }

  Values vector(std::uint64_t seed) const {
    Rng rng(seed);
    Values out(static_cast<std::size_t>(schema_.value_count()));
    for (float& value : out) value = static_cast<float>(rng.uniform() - 0.5);
    return out;
  }
  // What the codec sends of p; what it would leave, in pass 1.
  Values sent(std::uint64_t round, const Values& p, const Values& mean, Values* left = nullptr) {
    const kernels::PassInput input{.pass = mean.empty() ? 0U : 1U, .reduced = mean};
    const auto plan =
        codec_->prepare(shapes_.schema(), p, {plan_.seed, round, 3}, input, state_.span(), workspace_.span());
    EXPECT_TRUE(plan.ok()) << plan.error().message;
    for (std::size_t i = 0; i < plan->parts; ++i) EXPECT_TRUE(codec_->prepare_part(*plan, i).ok());
    if (left != nullptr) {
      *left = p;
      for (std::size_t i = 0; i < shapes_.layout().chunk_count(); ++i) {
        const std::span<float> chunk = shapes_.layout().of(std::span<float>(*left), i);
        EXPECT_TRUE(codec_->leave_chunk(*plan, i, chunk, chunk).ok());
      }
    }
    return {plan->values.begin(), plan->values.end()};
  }
  Values update(const Values& mean_p, const Values& mean_q) {
    const std::vector<std::span<const float>> means = {mean_p, mean_q};
    const auto plan = codec_->prepare_expand(shapes_.schema(), means, workspace_.span());
    EXPECT_TRUE(plan.ok());
    Values out(static_cast<std::size_t>(schema_.value_count()));
    for (std::size_t i = 0; i < shapes_.layout().chunk_count(); ++i) {
      EXPECT_TRUE(codec_->expand_chunk(*plan, i, shapes_.layout().of(std::span<float>(out), i)).ok());
    }
    return out;
  }

  round::Plan plan_;
  round::Schema schema_;
  aggregate::Shapes shapes_;
  std::unique_ptr<kernels::Codec> codec_;
  Buffer state_;
  Buffer workspace_;
  std::optional<Factors> factors_;
};

std::vector<double> wide(const Values& values) { return {values.begin(), values.end()}; }

TEST_P(FactorsTest, CodecAndOracleAgree) {
  ASSERT_TRUE(factors_);
  for (const std::uint32_t pass : {0U, 1U}) {
    EXPECT_EQ(factors_->sent_values(pass), codec_->pass_layout(shapes_.schema(), pass).value_count);
  }
  Values q = factors_->drawn();
  for (std::uint64_t round = 1; round <= 8; ++round) {
    const Values p = round == 4 ? Values(static_cast<std::size_t>(schema_.value_count())) : vector(round);
    const Values first = sent(round, p, {});
    EXPECT_EQ(factors_->wrong_first(p, q, wide(first)), "") << round;
    Values left;
    const Values second = sent(round, p, first, &left);
    const Values basis = factors_->basis(first);
    EXPECT_EQ(factors_->wrong_second(p, basis, wide(second), left), "") << round;
    EXPECT_EQ(factors_->update(first, second), update(first, second)) << round;
    ASSERT_TRUE(codec_->settle(shapes_.schema(), {plan_.seed, round, 0}, second, state_.span()).ok());
    q = factors_->settled(second);
    EXPECT_EQ(factors_->wrong_state(state_.span(), q, RoundId(round)), "") << round;
    EXPECT_NE(factors_->wrong_state(state_.span(), q, RoundId(round + 1)), "");
    EXPECT_EQ(Factors::factors_in(state_.span()), q);
  }
}

TEST_P(FactorsTest, SeesWhatIsOfAnotherMeanOrState) {
  const Values p = vector(1), other = vector(2), q = factors_->drawn();
  const Values first = sent(1, p, {}), another = sent(1, other, {});
  EXPECT_NE(factors_->wrong_first(p, q, wide(another)), "");
  EXPECT_NE(factors_->wrong_first(p, factors_->settled(sent(1, p, first)), wide(first)), "") << "another warm start";
  Values left, other_left;
  const Values second = sent(1, p, first, &left);
  const Values by_another = sent(1, p, another, &other_left);
  const Values basis = factors_->basis(first);
  EXPECT_EQ(factors_->wrong_second(p, basis, wide(second), left), "");
  EXPECT_NE(factors_->wrong_second(p, basis, wide(by_another), other_left), "") << "of another mean";
  EXPECT_NE(factors_->wrong_second(p, basis, wide(second), other_left), "") << "a residual of another Q";
  Values off = left;
  off[3] = off[3] + 1e-6F;
  EXPECT_NE(factors_->wrong_second(p, basis, wide(second), off), "") << "one value, by a little";
  Values changed = q;
  changed[1] = -changed[1];
  EXPECT_NE(factors_->wrong_state(state_.span(), changed, {}), "");
}

TEST_P(FactorsTest, ASiteSendsLessOnlyAsFarAsABoundCallsForIt) {
  const Values p = vector(1);
  Values half = p;
  for (float& value : half) value = value * 0.5F;
  const std::vector<double> first = wide(sent(1, half, {}));
  EXPECT_NE(factors_->wrong_first(p, factors_->drawn(), first), "") << "nothing calls for that";
  double most = 0;
  for (const double value : first) most = std::max(most, std::abs(value));
  plan_.value_abs_max = most;
  EXPECT_EQ(Factors::of(plan_, schema_)->wrong_first(p, factors_->drawn(), first), "");
  plan_.value_abs_max = 1.5 * most;
  EXPECT_NE(Factors::of(plan_, schema_)->wrong_first(p, factors_->drawn(), first), "") << "less than it must";
}

TEST(Factors, OtherCodecsHaveOnePass) {
  round::Plan plan;
  EXPECT_FALSE(Factors::of(plan, round::Schema()).has_value());
  plan.codec = "topk:ratio=0.1";
  EXPECT_FALSE(Factors::of(plan, round::Schema()).has_value());
}

INSTANTIATE_TEST_SUITE_P(Ranks, FactorsTest, testing::Values("powersgd:rank=1", "powersgd", "powersgd:rank=3"));

}  // namespace
}  // namespace fluvial::simulator

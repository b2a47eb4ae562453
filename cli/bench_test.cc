#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cli/bench_audit.h"
#include "cli/bench_update.h"
#include "core/aggregate/accumulator.h"
#include "core/aggregate/scale.h"
#include "core/aggregate/server_optimizer.h"
#include "core/digest/submission_digest.h"
#include "core/round/probe.h"
#include "kernels/stream_key.h"
#include "kernels/vector.h"

namespace fluvial::cli {
namespace {

constexpr std::size_t kParams = 5'000;
constexpr std::uint64_t kSeed = 7;

// The federation's side in small: the kernels and the accumulator that the real nodes use.
class Federation {
 public:
  Federation(const round::Plan& plan, std::vector<AuditSite> sites)
      : plan_(plan),
        sites_(std::move(sites)),
        codec_(kernels::make_codec(kernels::parse_codec(plan.codec).value()).value()) {
    scale_ = aggregate::scale_for(plan, sites_.size() * kBenchWeightMax).value();
    residuals_.assign(sites_.size(), std::vector<float>(kParams));
    for (std::size_t s = 0; s < sites_.size(); ++s) {
      states_.emplace_back(codec_->state_bytes({{kParams, plan.chunk_values}, {}}));
      std::ranges::fill(states_.back().span(), std::byte{0});
    }
    state_ = aggregate::initial_state(plan.optimizer, kParams);
  }

  // `late` is not in; `made`: it has trained, and its update is in its residual.
  json::object round(std::uint64_t number, const std::vector<float>& base, std::vector<float>& next, std::size_t late,
                     bool made = true) {
    const kernels::VectorSchema schema{.layout = {.value_count = kParams, .chunk_values = plan_.chunk_values},
                                       .tensors = {}};
    aggregate::Accumulator sum(schema.layout, 0, scale_);
    std::uint64_t weights = 0;
    json::array contributors;
    for (std::size_t s = 0; s < sites_.size(); ++s) {
      std::vector<float> local(kParams);
      apply_update({kSeed, number, sites_[s].index}, base, local);
      kernels::pseudo_gradient(base, local, {}, local);
      if (s == late && !made) continue;
      EXPECT_TRUE(codec_->fold(schema, local, residuals_[s], states_[s].span(), local).ok());
      if (s == late) {
        residuals_[s] = local;
        continue;
      }
      Buffer workspace(codec_->workspace_bytes(schema));
      const auto plan = codec_
                            ->prepare(schema, local, kernels::stream_key(plan_.seed, number, sites_[s].name), {},
                                      states_[s].span(), workspace.span())
                            .value();
      const auto weight = bench_weight(sites_[s].index);
      SubmissionDigest digest(s % 2 == 0 ? DigestKind::kStream : DigestKind::kTree, schema.layout.chunk_count());
      for (std::size_t chunk = 0; chunk < schema.layout.chunk_count(); ++chunk) {
        const auto values = schema.layout.of(std::span<const float>(local), chunk);
        Buffer bytes(codec_->encoded_bytes_max(values.size()));
        bytes.shrink(codec_->encode_chunk(plan, chunk, values, bytes.span()).value());
        digest.side_by_side(chunk, bytes.span());
        digest.in_order(bytes.span());
        EXPECT_TRUE(sum.add_chunk(*codec_, chunk, bytes.span(), static_cast<std::uint32_t>(weight)).ok());
        EXPECT_TRUE(
            codec_->residual_chunk(values, bytes.span(), schema.layout.of(std::span(residuals_[s]), chunk)).ok());
        EXPECT_TRUE(codec_->settle_chunk(schema, chunk, bytes.span(), states_[s].span()).ok());
      }
      weights += weight;
      contributors.push_back(json::object{
          {"site", sites_[s].node}, {"weight", weight}, {"digest", to_hex(digest.finish(round::probe_bytes()))}});
    }
    next = base;
    std::vector<float> mean(kParams);
    kernels::mean_of_sums(sum.sum(), scale_, weights, mean);
    const aggregate::ServerStep step(plan_.optimizer, schema.layout, {}, number, weights);
    for (std::size_t chunk = 0; chunk < schema.layout.chunk_count(); ++chunk) {
      const auto values = schema.layout.of(std::span<const float>(mean), chunk);
      EXPECT_TRUE(step.apply(chunk, values, state_, schema.layout.of(std::span(next), chunk)).ok());
    }
    return {{"round", number},
            {"participants", sites_.size()},
            {"contributors", contributors},
            {"weight", weights},
            {"sum_sha256", to_hex(sha256(std::as_bytes(sum.sum())))}};
  }

  const std::vector<float>& residual(std::size_t site) const { return residuals_[site]; }
  void forget_residual(std::size_t site) { residuals_[site].assign(kParams, 0.0F); }

 private:
  round::Plan plan_;
  std::vector<AuditSite> sites_;
  std::unique_ptr<kernels::Codec> codec_;
  int scale_ = 0;
  std::vector<float> state_;  // the optimizer's
  std::vector<std::vector<float>> residuals_;
  std::vector<Buffer> states_;  // the codec's
};

class AuditTest : public ::testing::TestWithParam<const char*> {
 protected:
  AuditTest() {
    plan_.codec = GetParam();
    plan_.chunk_values = 2'048;
    base_.resize(kParams);
    fill_model(kSeed, base_);
  }
  round::Plan plan_;
  std::vector<AuditSite> sites_ = {{1, 12, "site-1"}, {2, 10, "site-2"}, {3, 11, "site-3"}};
  std::vector<float> base_;
};

TEST_P(AuditTest, AgreesWithTheKernelsOverSeveralRoundsAndLateSites) {
  Federation federation(plan_, sites_);
  Audit audit(plan_, kSeed, 1, sites_, kBenchWeightMax);
  for (std::uint64_t round = 1; round <= 4; ++round) {
    std::vector<float> next;
    const json::object committed = federation.round(round, base_, next, round == 2 ? 1 : sites_.size());
    const Status status = audit.check_round(committed, base_, next);
    ASSERT_TRUE(status.ok()) << status.error().message;
    base_ = next;
  }
}

TEST_P(AuditTest, FindsOutWhetherALateUpdateWasEverMade) {
  Federation federation(plan_, sites_);
  Audit audit(plan_, kSeed, 1, sites_, kBenchWeightMax);
  const std::vector<bool> made = {true, false, false, true};  // rounds 2 to 5, without the second site
  for (std::uint64_t round = 1; round <= 6; ++round) {
    std::vector<float> next;
    const bool late = round >= 2 && round <= 5;
    const json::object committed =
        federation.round(round, base_, next, late ? 1 : sites_.size(), !late || made[round - 2]);
    const Status status = audit.check_round(committed, base_, next);
    ASSERT_TRUE(status.ok()) << status.error().message;
    base_ = next;
  }
}

TEST_P(AuditTest, AnUpdateThatIsRefusedIsDroppedUnlessItIsOnlyLate) {
  Federation federation(plan_, sites_);
  Audit audit(plan_, kSeed, 1, sites_, kBenchWeightMax);
  const std::vector<const char*> codes = {"data_loss", "internal"};
  for (std::uint64_t round = 1; round <= 3; ++round) {
    std::vector<float> next;
    const bool refused = round <= codes.size();
    json::object committed = federation.round(round, base_, next, refused ? 1 : sites_.size(), round == 2);
    if (refused) committed["refused"] = json::array{{{"site", sites_[1].node}, {"code", codes[round - 1]}}};
    const Status status = audit.check_round(committed, base_, next);
    ASSERT_TRUE(status.ok()) << status.error().message;
    base_ = next;
  }
}

TEST_P(AuditTest, ALateUpdateThatWasCertainlyMadeMayNotBeLost) {
  Federation federation(plan_, sites_);
  Audit audit(plan_, kSeed, 1, sites_, kBenchWeightMax);
  audit.set_known([](std::uint64_t, std::uint64_t round, std::uint64_t next) {
    EXPECT_EQ(next, 3U);
    return round == 1 ? Audit::Made::kPerhaps : Audit::Made::kYes;
  });
  for (std::uint64_t round = 1; round <= 2; ++round) {  // both lost
    std::vector<float> next;
    ASSERT_TRUE(audit.check_round(federation.round(round, base_, next, 1, false), base_, next).ok());
    base_ = next;
  }
  std::vector<float> next;
  const Status status = audit.check_round(federation.round(3, base_, next, sites_.size()), base_, next);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, ::testing::HasSubstr("site 2"));
}

TEST_P(AuditTest, AResidualThatWasLostIsFound) {
  Federation federation(plan_, sites_);
  Audit audit(plan_, kSeed, 1, sites_, kBenchWeightMax);
  std::vector<float> next;
  ASSERT_TRUE(audit.check_round(federation.round(1, base_, next, 1, true), base_, next).ok());
  base_ = next;
  ASSERT_TRUE(audit.check_round(federation.round(2, base_, next, sites_.size()), base_, next).ok());
  base_ = next;
  federation.forget_residual(0);
  const Status status = audit.check_round(federation.round(3, base_, next, sites_.size()), base_, next);
  if (plan_.codec == "fp32") return;  // it leaves none
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, ::testing::HasSubstr("site 1"));
}

TEST_P(AuditTest, KnowsTheResidualThatIsLeft) {
  Federation federation(plan_, sites_);
  Audit audit(plan_, kSeed, 1, sites_, kBenchWeightMax);
  for (std::uint64_t round = 1; round <= 3; ++round) {
    std::vector<float> next;
    ASSERT_TRUE(
        audit.check_round(federation.round(round, base_, next, round == 1 ? sites_.size() : 1), base_, next).ok());
    base_ = next;
  }
  for (std::size_t site = 0; site < sites_.size(); ++site) {
    std::vector<float> held = federation.residual(site);
    EXPECT_TRUE(audit.check_residual(sites_[site].index, held).ok());
    held[17] += 1.0F;
    EXPECT_FALSE(audit.check_residual(sites_[site].index, held).ok());
  }
}

TEST_P(AuditTest, OneBitInOneCoordinateIsFound) {
  Federation federation(plan_, sites_);
  Audit audit(plan_, kSeed, 1, sites_, kBenchWeightMax);
  std::vector<float> next;
  const json::object committed = federation.round(1, base_, next, sites_.size());
  next[4'321] = std::nextafter(next[4'321], 1.0F);
  const Status status = audit.check_round(committed, base_, next);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, ::testing::HasSubstr("coordinate 4321"));
}

TEST_P(AuditTest, AForgottenContributionIsFound) {
  Federation federation(plan_, sites_);
  Audit audit(plan_, kSeed, 1, sites_, kBenchWeightMax);
  std::vector<float> next;
  json::object committed = federation.round(1, base_, next, sites_.size());
  committed["contributors"].as_array().pop_back();
  EXPECT_FALSE(audit.check_round(committed, base_, next).ok());
}

TEST_P(AuditTest, AgreesWithTheServersStepOfEachOptimizerWithoutLayers) {
  for (const char* optimizer : {"fedavg:lr=0.3", "fedavgm", "nesterov:warmup=3", "delayed_nesterov:every=3,c=0.2",
                                "delayed_nesterov", "fedadagrad", "fedadam", "fedyogi:tau=0.01", "signsgd:lr=0.001"}) {
    SCOPED_TRACE(optimizer);
    plan_.optimizer = round::parse_server_optimizer(optimizer).value();
    Federation federation(plan_, sites_);
    Audit audit(plan_, kSeed, 1, sites_, kBenchWeightMax);
    std::vector<float> base = base_;
    for (std::uint64_t round = 1; round <= 9; ++round) {
      std::vector<float> next;
      const json::object committed = federation.round(round, base, next, sites_.size());
      const Status status = audit.check_round(committed, base, next);
      ASSERT_TRUE(status.ok()) << status.error().message;
      base = next;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, AuditTest,
                         ::testing::Values("fp32", "bf16", "int8", "topk:ratio=0.05", "dgc:ratio=0.05,clip=10",
                                           "ring:max=0.05", "sign:mode=vote"));

TEST(BenchUpdate, IsAFunctionOfItsArguments) {
  std::vector<float> first(kParams), second(kParams), other(kParams);
  fill_update({1, 2, 3}, first);
  fill_update({1, 2, 3}, second);
  fill_update({1, 2, 4}, other);
  EXPECT_EQ(first, second);
  EXPECT_NE(first, other);
}

TEST(BenchUpdate, HasZerosSmallAndLargeValues) {
  std::vector<float> values(1 << 16);
  fill_update({1, 1, 1}, values);
  const auto zeros = std::count(values.begin(), values.end(), 0.0F);
  const auto large = std::count_if(values.begin(), values.end(), [](float v) { return std::fabs(v) > 0.01F; });
  EXPECT_GT(zeros, 500);
  EXPECT_LT(zeros, 2'000);
  EXPECT_GT(large, 2);
  EXPECT_LT(large, 64);
}

}  // namespace
}  // namespace fluvial::cli

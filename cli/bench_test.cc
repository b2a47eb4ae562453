#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cli/bench_audit.h"
#include "cli/bench_test_support.h"
#include "cli/bench_update.h"
#include "core/aggregate/plan_forms.h"

namespace fluvial::cli {
namespace {

class AuditTest : public ::testing::TestWithParam<const char*> {
 protected:
  AuditTest() {
    plan_.codec = GetParam();
    aggregate::suit_optimizer(&plan_);
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
  // Rounds 2 to 5, without the second site.
  const std::vector<Late> fates = {Late::kSent, Late::kLost, Late::kLost, Late::kFolded};
  for (std::uint64_t round = 1; round <= 6; ++round) {
    std::vector<float> next;
    const bool late = round >= 2 && round <= 5;
    const json::object committed =
        federation.round(round, base_, next, late ? 1 : sites_.size(), late ? fates[round - 2] : Late::kSent);
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
    json::object committed =
        federation.round(round, base_, next, refused ? 1 : sites_.size(), round == 2 ? Late::kSent : Late::kLost);
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
    ASSERT_TRUE(audit.check_round(federation.round(round, base_, next, 1, Late::kLost), base_, next).ok());
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
  ASSERT_TRUE(audit.check_round(federation.round(1, base_, next, 1), base_, next).ok());
  base_ = next;
  ASSERT_TRUE(audit.check_round(federation.round(2, base_, next, sites_.size()), base_, next).ok());
  base_ = next;
  federation.residual(0).assign(kParams, 0.0F);
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
  if (plan_.optimizer.kind == round::Optimizer::kOnebitAdam) return;  // its codec goes with no other
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
                                           "ring:max=0.05", "sign:mode=vote", "onebit_adam:freeze=1"));

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

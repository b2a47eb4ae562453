// The audit of 1-bit Adam, against the kernels that the real nodes use.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "cli/bench_audit.h"
#include "cli/bench_test_checks.h"
#include "cli/bench_test_support.h"
#include "cli/bench_update.h"
#include "core/aggregate/plan_forms.h"

namespace fluvial::cli {
namespace {

constexpr std::uint64_t kFreeze = 2;
constexpr std::size_t kNobody = 99;

round::Plan plan_with(const std::string& codec) {
  round::Plan plan;
  plan.codec = codec;
  aggregate::suit_optimizer(&plan);
  plan.chunk_values = 1'000;  // with blocks that end within a chunk, and chunks whose codes end within a word
  plan.seed = 5;
  return plan;
}

Buffer copy_of(const Buffer& bytes) {
  Buffer copy(bytes.size());
  std::ranges::copy(bytes.span(), copy.data());
  return copy;
}

class OnebitAuditTest : public ::testing::Test {
 protected:
  OnebitAuditTest() { fill_model(kSeed, model_); }

  // The federation takes the round, `slip` changes what is said of it, and the audit looks.
  Status follow(std::uint64_t number, std::size_t late = kNobody, Late fate = Late::kSent,
                const std::function<void(json::object& round, std::vector<float>& model)>& slip = {}) {
    const std::vector<float> base = model_;
    json::object round = federation_.round(number, base, model_, late, fate);
    if (slip) slip(round, model_);
    return audit_.check_round(round, base, model_);
  }
  void expect_right(std::uint64_t number, std::size_t late = kNobody, Late fate = Late::kSent) {
    const Status status = follow(number, late, fate);
    ASSERT_TRUE(status.ok()) << status.error().message;
  }
  void expect_right_until(std::uint64_t number) {
    for (std::uint64_t round = 1; round <= number; ++round) expect_right(round);
  }
  void expect_wrong(std::uint64_t number, const std::string& what,
                    const std::function<void(json::object& round, std::vector<float>& model)>& slip = {}) {
    const Status status = follow(number, kNobody, Late::kSent, slip);
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().message, ::testing::HasSubstr(what));
  }
  void expect_residuals() { cli::expect_residuals(audit_, federation_, sites_); }
  void continue_with(const std::string& codec, bool keep_optimizer) {
    federation_.continue_as(plan_with(codec), keep_optimizer);
    audit_.continue_as(plan_with(codec), 2);
  }

  const std::vector<AuditSite> sites_ = {{1, 12, "site-1"}, {2, 10, "site-2"}, {3, 11, "site-3"}};
  Federation federation_{plan_with("onebit_adam:freeze=2"), sites_};
  Audit audit_{plan_with("onebit_adam:freeze=2"), kSeed, 1, sites_, kBenchWeightMax};
  std::vector<float> model_ = std::vector<float>(kParams);
};

TEST_F(OnebitAuditTest, AgreesWithTheKernelsIntoTheRoundsBehindTheWarmUp) {
  expect_right_until(7);
  expect_residuals();
}

TEST_F(OnebitAuditTest, WhatIsLateGivesBackWhatItWasLent) {
  expect_right(1, 0, Late::kSent);
  expect_right(2, 0, Late::kFolded);
  expect_right(3, 1, Late::kSent);
  expect_residuals();
  expect_right(4, 1, Late::kSent);
  expect_right(5, 1, Late::kFolded);
  expect_residuals();
  expect_right(6, 1, Late::kLost);
  expect_right(7, 2, Late::kFolded);
  expect_right(8);
  expect_residuals();
  expect_right(9);
}

TEST_F(OnebitAuditTest, ALateUpdateThatWasCertainlyMadeMayStillBeOfEitherKind) {
  audit_.set_known([](std::uint64_t, std::uint64_t, std::uint64_t) { return Audit::Made::kYes; });
  expect_right_until(kFreeze);
  expect_right(3, 1, Late::kSent);
  expect_right(4, 1, Late::kFolded);
  expect_right(5);
  expect_right(6, 1, Late::kLost);
  expect_wrong(7, "site 2 sent");
}

TEST_F(OnebitAuditTest, MoreRoundsThanCanBeTriedAreNamed) {
  expect_right_until(kFreeze);
  for (std::uint64_t round = 3; round <= 11; ++round) expect_right(round, 1);
  expect_wrong(12, "site 2 trained for 9 rounds without being counted");
}

TEST_F(OnebitAuditTest, AMomentumOfAnotherRoundIsFound) {
  expect_right_until(kFreeze);
  const Buffer before = copy_of(federation_.handed());
  expect_wrong(3, "the momentum that comes down", [&](json::object& round, std::vector<float>&) {
    round["codec_state"] = Federation::state_object(before.span());
  });
}

TEST_F(OnebitAuditTest, AMomentumThatDoesNotComeDownIsFound) {
  expect_right(1);
  expect_wrong(2, "comes down is not there",
               [](json::object& round, std::vector<float>&) { round.erase("codec_state"); });
}

TEST_F(OnebitAuditTest, AMomentumThatComesDownInTheWarmUpIsFound) {
  expect_wrong(1, "expected none of 0 bytes", [](json::object& round, std::vector<float>&) {
    round["codec_state"] = Federation::state_object(as_byte_span("momentum"));
  });
}

TEST_F(OnebitAuditTest, ASiteThatAddsTheMomentumOfAnotherRoundIsFound) {
  expect_right_until(kFreeze);
  Buffer before = copy_of(federation_.handed());
  expect_right(3);
  federation_.handed() = std::move(before);
  expect_wrong(4, "site 1 sent");
}

TEST_F(OnebitAuditTest, MomentumThatIsNotGivenBackIsFound) {
  expect_right_until(kFreeze);
  expect_right(3, 1, Late::kSent);
  std::ranges::fill(federation_.state(1).span(), std::byte{0});
  expect_wrong(4, "site 2 sent");
}

TEST_F(OnebitAuditTest, MomentumThatIsGivenBackThoughItCountedIsFound) {
  expect_right_until(kFreeze);
  const std::vector<float> lent(kParams, 0.001F);
  expect_right(3);
  std::memcpy(federation_.state(1).data(), lent.data(), federation_.state(1).size());
  expect_wrong(4, "site 2 sent");
}

TEST_F(OnebitAuditTest, AResidualThatWasLostIsFound) {
  expect_right_until(3);
  federation_.residual(1).assign(kParams, 0.0F);
  expect_wrong(4, "site 2");
}

TEST_F(OnebitAuditTest, OneBitInOneCoordinateIsFound) {
  expect_right_until(3);
  expect_wrong(4, "coordinate 4321",
               [](json::object&, std::vector<float>& model) { model[4'321] = std::nextafter(model[4'321], 1.0F); });
}

TEST_F(OnebitAuditTest, ARunThatContinuesAnotherBeginsWithAWarmUpOfItsOwn) {
  expect_right_until(3);
  continue_with("onebit_adam:freeze=1,beta1=0.5", false);
  expect_right_until(3);
  expect_residuals();
}

TEST_F(OnebitAuditTest, ARunWithoutAWarmUpGoesOnBehindOneThatIsOver) {
  expect_right_until(3);
  continue_with("onebit_adam:freeze=0", true);
  expect_right(1, 1, Late::kSent);
  expect_right(2);
  expect_right(3);
  expect_residuals();
}

TEST_F(OnebitAuditTest, ARunWithAnotherCodecBegins) {
  expect_right_until(3);
  continue_with("int8", false);
  expect_right_until(2);
  continue_with("onebit_adam:freeze=1", false);
  expect_right_until(3);
  expect_residuals();
}

}  // namespace
}  // namespace fluvial::cli

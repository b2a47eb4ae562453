#include "core/round/integers.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/round/plan.h"

namespace fluvial::round {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

const Schema& schema() {
  static const Schema made = *Schema::make({{"w", DType::kF32, {2}},
                                            {"flag", DType::kBool, {1}},
                                            {"steps", DType::kI64, {2}},
                                            {"v", DType::kF32, {1}},
                                            {"small", DType::kU8, {1}}});
  return made;
}
Status check(std::vector<std::int64_t> integers, std::vector<std::int64_t> base = {0, 40, kMost - 5, 250}) {
  return check_integers(schema(), base, integers);
}

TEST(Integers, MayBeWhatTheirDtypeHoldsAndARoundCanCount) {
  EXPECT_TRUE(check({0, 40, kMost - 5, 250}).ok());
  EXPECT_TRUE(check({1, 40 + kIntegerStepMax, kMost, 255}).ok());
  EXPECT_TRUE(check({0, std::numeric_limits<std::int64_t>::min(), 0, 0}).ok()) << "the base's is greater: it stays";
  EXPECT_TRUE(check({7, 0, 0, 0}, {7, 0, 0, 0}).ok()) << "what stood in the initial model may stay";
  Buffer model(schema().model_bytes());
  const std::vector<std::int64_t> joined{1, 40 + kIntegerStepMax, kMost, 255};
  EXPECT_TRUE(join_model(schema(), std::vector<float>(3), joined, model.span()).ok()) << "what is within is committed";
}

TEST(Integers, BeyondThatAreRefusedByName) {
  for (const auto& [integers, reason] : std::vector<std::pair<std::vector<std::int64_t>, std::string>>{
           {{2, 40, 0, 0}, "tensor 'flag', value 0 is 2, expected 0 to 1"},
           {{-1, 40, 0, 0}, "tensor 'flag', value 0 is -1"},
           {{0, 41 + kIntegerStepMax, 0, 0},
            "tensor 'steps', value 0 is 4294967337, expected -9223372036854775808 to 4294967336"},
           {{0, kMost, 0, 0}, "tensor 'steps', value 0"},
           {{0, 40, 0, 256}, "tensor 'small', value 0 is 256, expected 0 to 255"},
           {{0, 40, 0, -1}, "tensor 'small', value 0 is -1"}}) {
    const Status refused = check(integers);
    ASSERT_FALSE(refused.ok()) << reason;
    EXPECT_EQ(refused.error().code, Code::kDataLoss);
    EXPECT_NE(refused.error().message.find(reason), std::string::npos) << refused.error().message;
  }
}

TEST(Integers, NoRunIsLongEnoughToFillAnI64) {
  Plan plan;
  plan.name = "long";
  plan.rounds = static_cast<std::uint64_t>(kMost / kIntegerStepMax);
  EXPECT_FALSE(check_plan(plan).ok());
}

}  // namespace
}  // namespace fluvial::round

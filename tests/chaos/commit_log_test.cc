#include "tests/chaos/commit_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fluvial::chaos {
namespace {

using cli::json::array;
using cli::json::object;
using ::testing::HasSubstr;

object entry(std::uint64_t site) {
  return {{"site", site}, {"name", "site-" + std::to_string(site)}, {"weight", 10}, {"digest", "aa"}};
}

object round(std::uint64_t number, std::vector<std::uint64_t> sites = {1, 2}) {
  array contributors;
  for (const std::uint64_t site : sites) contributors.push_back(entry(site));
  return {{"round", number},
          {"attempt", 1},
          {"participants", sites.size() + 1},
          {"refused", array()},
          {"late", 1},
          {"weight", 10 * sites.size()},
          {"model_sha256", "ab"},
          {"contributors", contributors}};
}

TEST(CommitLog, TakesRoundAfterRoundAndHearsEachAgain) {
  CommitLog log(2);
  EXPECT_TRUE(*log.add(round(1)));
  object event = round(2, {1, 3});
  event["event"] = "committed";
  EXPECT_TRUE(*log.add(event));
  object listed = round(2, {1, 3});
  listed["contributors"].as_array()[0].as_object()["parent"] = "coordinator";  // no event has it
  EXPECT_FALSE(*log.add(listed));
  EXPECT_EQ(log.last(), 2U);
  EXPECT_EQ(log.counted().at("site-1"), 2U);
  EXPECT_EQ(log.late(), 2U);
  EXPECT_EQ(log.by_attempts().at(1), 2U);
}

TEST(CommitLog, NobodyIsLateForAWindow) {
  CommitLog log(2, true);
  EXPECT_FALSE(log.add(round(1)).ok()) << "one late";
  object window = round(1);
  window["late"] = 0;
  EXPECT_TRUE(*log.add(window)) << "two of three";
  window["round"] = 2;
  window["participants"] = 1;
  EXPECT_THAT(log.add(window).error().message, HasSubstr("are not its 1 participants"));
}

TEST(CommitLog, FindsWhatACommitMayNotBe) {
  const auto refusal = [](const object& wrong, const std::string& why) {
    CommitLog log(2);
    EXPECT_TRUE(log.add(round(1)).ok());
    const auto added = log.add(wrong);
    ASSERT_FALSE(added.ok()) << why;
    EXPECT_THAT(added.error().message, HasSubstr(why));
  };
  object changed = round(1);
  changed["model_sha256"] = "cd";
  refusal(changed, "committed twice");
  refusal(round(3), "committed after round 1");
  refusal(round(2, {1}), "the quorum is 2");
  refusal(round(2, {1, 1}), "site-1 counts twice");
  object weight = round(2);
  weight["weight"] = 30;
  refusal(weight, "weight");
  object few = round(2);
  few["participants"] = 2;
  refusal(few, "are not its 2 participants");
  object both = round(2);
  both["refused"] = array{entry(2)};
  both["late"] = 0;
  refusal(both, "site-2 counts, and is refused");
  object nameless = round(2);
  nameless["contributors"].as_array()[0].as_object()["digest"] = "";
  refusal(nameless, "without a digest");
  object outside = round(2);
  outside["passes"] = array{object{{"pass", 0}, {"contributors", array{entry(1), entry(3)}}}};
  refusal(outside, "is not in pass 1");
}

TEST(CommitLog, CountsWhoDroppedOutBetweenPasses) {
  CommitLog log(2);
  object passed = round(1);
  passed["passes"] = array{object{{"pass", 0}, {"contributors", array{entry(1), entry(2), entry(3)}}}};
  EXPECT_TRUE(*log.add(passed));
  EXPECT_TRUE(*log.add(round(2)));
  EXPECT_EQ(log.between_passes(), 1U);
}

}  // namespace
}  // namespace fluvial::chaos

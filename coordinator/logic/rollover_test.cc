#include "coordinator/logic/rollover.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fluvial::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const WallTime kAtFirst{std::chrono::days(20'000)};
const WallTime kLater = kAtFirst + std::chrono::hours(1);

TEST(RolloverSteps, EachIsTakenInItsPhaseAndNoOther) {
  using enum RolloverPhase;
  for (const RolloverPhase phase : {kNone, kBegun, kIssuing}) {
    EXPECT_EQ(may_begin(phase).ok(), phase == kNone);
    EXPECT_EQ(may_undo(phase).ok(), phase == kBegun);
    EXPECT_EQ(may_issue(phase, {}, false).ok(), phase == kBegun);
    EXPECT_EQ(may_end(phase, {}, false).ok(), phase == kIssuing);
    // --force is about members, not about the order.
    EXPECT_EQ(may_issue(phase, {"hospital-a"}, true).ok(), phase == kBegun);
    EXPECT_EQ(may_end(phase, {"hospital-a"}, true).ok(), phase == kIssuing);
  }
  EXPECT_EQ(rollover_phase(false, false), kNone);
  EXPECT_EQ(rollover_phase(true, false), kBegun);
  EXPECT_EQ(rollover_phase(false, true), kIssuing);
}

TEST(RolloverSteps, WhoStandsInTheWayIsNamedWithWhatToDo) {
  const Status issue = may_issue(RolloverPhase::kBegun, {"hospital-a", "hospital-b"}, false);
  ASSERT_FALSE(issue.ok());
  EXPECT_THAT(issue.error().message, HasSubstr("hospital-a, hospital-b. "));
  EXPECT_THAT(issue.error().message, HasSubstr("--force"));
  const Status end = may_end(RolloverPhase::kIssuing, std::vector<std::string>(25, "site"), false);
  ASSERT_FALSE(end.ok());
  EXPECT_THAT(end.error().message, HasSubstr("and 15 more"));
}

TEST(RolloverSteps, WhoHasAnotherListIsWaitedForUnlessItIsNoMemberAnyMore) {
  EXPECT_THAT(without_list({{"c", 4}, {"b", 5}, {"a", 0}, {"gone", 0, false}, {"ahead", 6}}, 5),
              ElementsAre("a", "ahead", "c"));
}

TEST(RolloverEnd, WhoHasShownACertificateOfAnotherAuthorityRelyOnTheOldOneNoMore) {
  const auto leaving = [](std::uint32_t node, const char* name, WallTime ends = kLater) {
    return HeldCertificate{NodeId(node), name, true, true, false, ends};
  };
  const auto kept = [](std::uint32_t node, const char* name, bool used) {
    return HeldCertificate{NodeId(node), name, false, used, false, kLater};
  };
  EXPECT_THAT(relying_on_leaving({leaving(1, "a")}, kAtFirst), ElementsAre("a"));
  EXPECT_THAT(relying_on_leaving({leaving(1, "a"), kept(1, "a", true)}, kAtFirst), IsEmpty());
  // The answer with the new one may have been lost.
  EXPECT_THAT(relying_on_leaving({leaving(1, "a"), kept(1, "a", false)}, kAtFirst), ElementsAre("a"));
  EXPECT_THAT(relying_on_leaving({leaving(1, "a"), kept(2, "b", true)}, kAtFirst), ElementsAre("a"));
  EXPECT_THAT(relying_on_leaving({leaving(1, "a", kAtFirst)}, kAtFirst), IsEmpty());
  HeldCertificate refused = leaving(1, "a");
  refused.refused = true;
  EXPECT_THAT(relying_on_leaving({refused}, kAtFirst), IsEmpty());
}

}  // namespace
}  // namespace fluvial::coordinator

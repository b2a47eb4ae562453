// At an aggregator, too, who is known not to come is asked and not waited for (core/round/attendance.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "aggregator/logic/test_region.h"

namespace fluvial::aggregator {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class AttendedRegion : public testing::Test {
 protected:
  // Sites 1 and 2 are in after a second. Whether their sum then waits for site 3.
  bool waits(std::uint64_t round) {
    machine_.opened(opening(1, {}, round), at(0s));
    const bool waited = all<SendPartial>(bring(machine_, 10 * round, {1, 2}, at(1s))).empty();
    if (waited) EXPECT_THAT(all<SendPartial>(machine_.tick(at(9s))), SizeIs(1));
    last_ = machine_.gather().late();
    machine_.closed();
    return waited;
  }
  RegionMachine machine_;
  std::vector<SiteId> last_;
};

TEST_F(AttendedRegion, ASilentSiteHoldsUpThreeSumsAndNoMore) {
  std::vector<bool> waited;
  for (std::uint64_t round = 1; round <= 5; ++round) waited.push_back(waits(round));
  EXPECT_THAT(waited, ElementsAre(true, true, true, false, false));
  EXPECT_THAT(last_, ElementsAre(SiteId(3))) << "the parent is told that it is missing";
  machine_.opened(opening(1, {}, 6), at(0s));
  machine_.heard(SiteId(3));
  EXPECT_THAT(all<SendPartial>(bring(machine_, 60, {1, 2}, at(1s))), IsEmpty()) << "it comes after all";
  EXPECT_THAT(all<SendPartial>(bring(machine_, 61, {3}, at(2s))), SizeIs(1));
}

TEST_F(AttendedRegion, ASiteWithoutAWorkerHoldsUpOneSum) {
  machine_.has_workers(SiteId(3), false);
  EXPECT_TRUE(waits(1));
  EXPECT_FALSE(waits(2));
  machine_.has_workers(SiteId(3), true);
  EXPECT_TRUE(waits(3));
}

TEST_F(AttendedRegion, ASumThatHasNobodyToWaitForSaysSoAtOnce) {
  for (const std::uint32_t site : {1U, 2U, 3U}) machine_.has_workers(SiteId(site), false);
  machine_.opened(opening(1), at(0s));
  machine_.tick(at(9s));
  machine_.closed();
  const auto sent = all<SendPartial>(machine_.opened(opening(1, {}, 2), at(0s)));
  ASSERT_THAT(sent, SizeIs(1));
  EXPECT_THAT(sent[0].missing, SizeIs(3));
}

}  // namespace
}  // namespace fluvial::aggregator

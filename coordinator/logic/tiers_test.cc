#include "coordinator/logic/tiers.h"

#include <gmock/gmock.h>

#include <limits>

namespace fluvial::coordinator {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Transfer transfer(Role child, Role parent, Doing doing, std::uint64_t done, std::uint64_t total,
                  std::optional<double> left_s = {}) {
  Activity activity;
  activity.doing = doing;
  activity.done_bytes = done;
  activity.total_bytes = total;
  activity.left_s = left_s;
  return {child, parent, activity};
}

TEST(Tiers, EachIsTheSumOfItsNodesAndEndsWithTheSlowest) {
  const std::vector<Transfer> transfers = {transfer(Role::kAggregator, Role::kCoordinator, Doing::kSending, 5, 50, 9.0),
                                           transfer(Role::kSite, Role::kAggregator, Doing::kSending, 40, 100, 3.0),
                                           transfer(Role::kSite, Role::kAggregator, Doing::kSending, 60, 100, 12.0),
                                           transfer(Role::kSite, Role::kAggregator, Doing::kSending, 0, 100)};
  EXPECT_THAT(tiers(transfers),
              ElementsAre(TierProgress{Role::kSite, Role::kAggregator, Doing::kSending, 3, 100, 300, 12.0},
                          TierProgress{Role::kAggregator, Role::kCoordinator, Doing::kSending, 1, 5, 50, 9.0}));
}

TEST(Tiers, WhatGoesDownIsNotAddedToWhatGoesUp) {
  const std::vector<Transfer> transfers = {transfer(Role::kSite, Role::kCoordinator, Doing::kFetching, 10, 20),
                                           transfer(Role::kSite, Role::kCoordinator, Doing::kSending, 1, 2),
                                           transfer(Role::kSite, Role::kAggregator, Doing::kFetching, 7, 8)};
  EXPECT_THAT(tiers(transfers),
              ElementsAre(TierProgress{Role::kSite, Role::kAggregator, Doing::kFetching, 1, 7, 8, {}},
                          TierProgress{Role::kSite, Role::kCoordinator, Doing::kSending, 1, 1, 2, {}},
                          TierProgress{Role::kSite, Role::kCoordinator, Doing::kFetching, 1, 10, 20, {}}));
}

TEST(Tiers, WhoSendsNothingIsInNone) {
  EXPECT_THAT(tiers({}), IsEmpty());
  EXPECT_THAT(tiers({transfer(Role::kSite, Role::kAggregator, Doing::kTraining, 1, 2),
                     transfer(Role::kSite, Role::kAggregator, Doing::kSending, 0, 0)}),
              IsEmpty());
  EXPECT_EQ(tiers({transfer(Role::kSite, Role::kAggregator, Doing::kSending, 9, 8)}).front().done_bytes, 8U)
      << "a report is a peer's word";
}

TEST(Tiers, WhatOneReportsBeyondAllSenseDoesNotWrapTheSum) {
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
  EXPECT_THAT(tiers({transfer(Role::kSite, Role::kAggregator, Doing::kSending, 10, 20),
                     transfer(Role::kSite, Role::kAggregator, Doing::kSending, kMax, kMax)}),
              ElementsAre(TierProgress{Role::kSite, Role::kAggregator, Doing::kSending, 2, kMax, kMax, {}}));
}

}  // namespace
}  // namespace fluvial::coordinator

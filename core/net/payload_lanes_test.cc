#include "core/net/payload_lanes.h"

#include <gtest/gtest.h>

namespace fluvial::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::size_t kMany = 8 << 20;
constexpr TimePoint kStart{std::chrono::hours(1)};

TEST(PayloadLanes, ByHowLongAPayloadOfItsLengthWasInTheWay) {
  EXPECT_EQ(PayloadLanes::lane_for(kMany, seconds(0)), 0u);
  EXPECT_EQ(PayloadLanes::lane_for(kMany, seconds(1)), 0u);
  EXPECT_EQ(PayloadLanes::lane_for(kMany, seconds(2)), 1u);
  EXPECT_EQ(PayloadLanes::lane_for(kMany, seconds(8)), 1u);
  EXPECT_EQ(PayloadLanes::lane_for(kMany, seconds(9)), 2u);
  EXPECT_EQ(PayloadLanes::lane_for(kMany, std::chrono::hours(1)), 2u);
  EXPECT_EQ(PayloadLanes::lane_for(100, milliseconds(250)), 0u) << "a small one may take a moment, too";
  EXPECT_EQ(PayloadLanes::lane_for(100, milliseconds(500)), 2u);
}

TEST(PayloadLanes, WhoWasSlowIsForgivenALaneAtATime) {
  PayloadLanes lanes;
  EXPECT_EQ(lanes.lane_of(1, kStart), 0u);
  lanes.ended(1, kMany, seconds(20), kStart);
  EXPECT_EQ(lanes.lane_of(1, kStart), 2u);
  EXPECT_EQ(lanes.lane_of(2, kStart), 0u) << "nobody else's fault";
  const TimePoint before = kStart + PayloadLanes::kForgivenAfter - milliseconds(1);
  EXPECT_EQ(lanes.lane_of(1, before), 2u);
  EXPECT_EQ(lanes.lane_of(1, kStart + PayloadLanes::kForgivenAfter), 1u);
  EXPECT_EQ(lanes.lane_of(1, kStart + 2 * PayloadLanes::kForgivenAfter), 0u);
  EXPECT_EQ(lanes.lane_of(1, kStart + 100 * PayloadLanes::kForgivenAfter), 0u);
}

TEST(PayloadLanes, WhoIsSlowAgainBeginsToWaitAnew) {
  PayloadLanes lanes;
  lanes.ended(1, kMany, seconds(20), kStart);
  const TimePoint later = kStart + PayloadLanes::kForgivenAfter - seconds(1);
  lanes.ended(1, kMany, seconds(20), later);
  EXPECT_EQ(lanes.lane_of(1, kStart + PayloadLanes::kForgivenAfter), 2u);
  EXPECT_EQ(lanes.lane_of(1, later + PayloadLanes::kForgivenAfter), 1u);
}

TEST(PayloadLanes, APayloadThatComesFastEndsNoPenalty) {
  PayloadLanes lanes;
  lanes.ended(1, kMany, seconds(20), kStart);
  lanes.ended(1, kMany, seconds(0), kStart);
  lanes.ended(1, kMany, seconds(2), kStart);
  EXPECT_EQ(lanes.lane_of(1, kStart), 2u);
}

TEST(PayloadLanes, WhoIsForgivenIsForgotten) {
  PayloadLanes lanes;
  for (std::uint64_t member = 0; member < 100; ++member) lanes.ended(member, kMany, seconds(20), kStart);
  EXPECT_EQ(lanes.size(), 100u);
  lanes.ended(200, kMany, seconds(20), kStart + 2 * PayloadLanes::kForgivenAfter);
  EXPECT_EQ(lanes.size(), 1u);
}

}  // namespace
}  // namespace fluvial::net

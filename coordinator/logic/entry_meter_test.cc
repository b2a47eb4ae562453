#include "coordinator/logic/entry_meter.h"

#include <gtest/gtest.h>

namespace fluvial::coordinator {
namespace {

TEST(EntryMeter, AFewAreWrittenAndAFloodIsCounted) {
  EntryMeter meter;
  TimePoint now{};
  for (int i = 0; i < 10; ++i) EXPECT_EQ(meter.happened(now), 0U) << i;
  for (int i = 0; i < 1'000; ++i) EXPECT_EQ(meter.happened(now), std::nullopt) << i;
  now += std::chrono::minutes(1);
  EXPECT_EQ(meter.happened(now), 1'000U);
  EXPECT_EQ(meter.happened(now), std::nullopt);
  now += std::chrono::hours(24);
  EXPECT_EQ(meter.happened(now), 1U);
  for (int i = 0; i < 9; ++i) EXPECT_EQ(meter.happened(now), 0U) << "a day saves up no more than at first";
  EXPECT_EQ(meter.happened(now), std::nullopt);
}

TEST(EntryMeter, KeepsToTheBoundThatItIsGiven) {
  EntryMeter meter({.at_once = 2, .each = std::chrono::hours(1)});
  TimePoint now{};
  EXPECT_EQ(meter.happened(now), 0U);
  EXPECT_EQ(meter.happened(now), 0U);
  EXPECT_EQ(meter.happened(now), std::nullopt);
  now += std::chrono::minutes(59);
  EXPECT_EQ(meter.happened(now), std::nullopt);
  now += std::chrono::minutes(2);
  EXPECT_EQ(meter.happened(now), 2U);
}

}  // namespace
}  // namespace fluvial::coordinator

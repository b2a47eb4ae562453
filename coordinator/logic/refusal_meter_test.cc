#include "coordinator/logic/refusal_meter.h"

#include <gtest/gtest.h>

namespace fluvial::coordinator {
namespace {

TEST(RefusalMeter, AFewAreWrittenAndAFloodIsCounted) {
  RefusalMeter meter;
  TimePoint now{};
  for (int i = 0; i < 10; ++i) EXPECT_EQ(meter.refused(now), 0U) << i;
  for (int i = 0; i < 1'000; ++i) EXPECT_EQ(meter.refused(now), std::nullopt) << i;
  now += std::chrono::minutes(1);
  EXPECT_EQ(meter.refused(now), 1'000U);
  EXPECT_EQ(meter.refused(now), std::nullopt);
  now += std::chrono::hours(24);
  EXPECT_EQ(meter.refused(now), 1U);
  for (int i = 0; i < 9; ++i) EXPECT_EQ(meter.refused(now), 0U) << "a day saves up no more than at first";
  EXPECT_EQ(meter.refused(now), std::nullopt);
}

}  // namespace
}  // namespace fluvial::coordinator

#include "edge/logic/busy_time.h"

#include <gtest/gtest.h>

namespace fluvial::edge {
namespace {

using std::chrono::seconds;

TimePoint at(int s) { return TimePoint(seconds(s)); }

TEST(BusyTime, TheShareIsFromLapToLap) {
  BusyTime training;
  training.set(true, at(0));
  EXPECT_EQ(training.lap(at(10)), std::nullopt) << "since when?";
  training.set(false, at(13));
  EXPECT_EQ(training.total(at(20)), seconds(13));
  EXPECT_EQ(training.lap(at(20)), 0.3);
  training.set(true, at(25));
  EXPECT_EQ(training.lap(at(30)), 0.5) << "it goes on";
  EXPECT_EQ(training.lap(at(40)), 1.0);
  training.set(false, at(40));
  EXPECT_EQ(training.lap(at(50)), 0.0);
  EXPECT_EQ(training.lap(at(50)), std::nullopt) << "no time has passed";
}

TEST(BusyTime, TheSameAgainChangesNothing) {
  BusyTime training;
  training.set(false, at(1));
  training.set(true, at(2));
  training.set(true, at(5));
  EXPECT_EQ(training.total(at(6)), seconds(4));
  training.set(false, at(6));
  training.set(false, at(9));
  EXPECT_EQ(training.total(at(10)), seconds(4));
}

}  // namespace
}  // namespace fluvial::edge

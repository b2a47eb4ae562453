#include "core/round/window_goal.h"

#include <gtest/gtest.h>

namespace fluvial::round {
namespace {

TEST(WindowGoal, IsThePlansOrAtMostHalfOfWhoTakesPart) {
  EXPECT_EQ(window_goal(3, 6), 3U);
  EXPECT_EQ(window_goal(0, 6), 3U);
  EXPECT_EQ(window_goal(0, 7), 4U);
  EXPECT_EQ(window_goal(0, 100), kWindowGoal);
  EXPECT_EQ(window_goal(9, 6), 9U) << "a window that has everybody closes by that";
  EXPECT_EQ(window_goal_told(9, 6), 6U);
  EXPECT_EQ(window_goal_told(3, 6), 3U);
}

}  // namespace
}  // namespace fluvial::round

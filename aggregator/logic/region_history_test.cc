#include "aggregator/logic/region_history.h"

#include <gtest/gtest.h>

namespace fluvial::aggregator {
namespace {

using round::HistoryId;

const round::Lineage kRestored{{HistoryId(7), Epoch(20), RunId(3), {}}};

TEST(RegionHistory, TakesALeaseOfAHistoryThatBeganAfterAllThatItHeard) {
  RegionHistory history;
  EXPECT_TRUE(history.is_current(HistoryId(7))) << "it has none yet";
  const Result<bool> first = history.granted({}, Epoch(4));
  ASSERT_TRUE(first.ok());
  EXPECT_FALSE(*first);
  EXPECT_FALSE(history.is_current(HistoryId(7)));
  history.heard(Epoch(19));
  history.committed(RunId(3), RoundId(5));
  EXPECT_EQ(history.standing(), (round::Standing{HistoryId(0), Epoch(19), {{RunId(3), RoundId(5), true}}}));

  const Result<bool> restored = history.granted(kRestored, Epoch(21));
  ASSERT_TRUE(restored.ok());
  EXPECT_TRUE(*restored);
  EXPECT_TRUE(history.is_current(HistoryId(7)));
  EXPECT_EQ(history.standing(), (round::Standing{HistoryId(7), Epoch(21), {}})) << "the commit may be lost";
  EXPECT_FALSE(*history.granted(kRestored, Epoch(22)));
}

TEST(RegionHistory, TakesNoneThatBeganBeforeSomethingThatItKnows) {
  RegionHistory history;
  ASSERT_TRUE(history.granted({}, Epoch(4)).ok());
  history.heard(Epoch(20));
  history.committed(RunId(3), RoundId(5));
  EXPECT_FALSE(history.granted(kRestored, Epoch(21)).ok());
  EXPECT_FALSE(history.is_current(HistoryId(7)));
  EXPECT_EQ(history.standing(), (round::Standing{HistoryId(0), Epoch(20), {{RunId(3), RoundId(5), true}}}));
}

}  // namespace
}  // namespace fluvial::aggregator

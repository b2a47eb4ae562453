#include "core/round/history.h"

#include <gtest/gtest.h>

namespace fluvial::round {
namespace {

constexpr RunId kRun{2};

History history(std::uint64_t id, std::uint64_t began, std::uint64_t last_run, std::vector<Fork> forks) {
  return {HistoryId(id), Epoch(began), RunId(last_run), std::move(forks)};
}

TEST(HistoryTest, WithoutARestoreEverythingIsShared) {
  const Common common({}, {});
  EXPECT_TRUE(common.has(RunId(99)));
  EXPECT_TRUE(common.has(RunId(99), RoundId(1'000'000)));
}

TEST(HistoryTest, RoundsAndRunsAfterTheForkAreLost) {
  const Lineage restored = {history(7, 50, 2, {{kRun, RoundId(200)}})};
  for (const Common& common : {Common({}, restored), Common(restored, {})}) {
    EXPECT_TRUE(common.has(kRun, RoundId(200)));
    EXPECT_FALSE(common.has(kRun, RoundId(201)));
    EXPECT_TRUE(common.has(RunId(1), RoundId(5'000)));  // it was over: nothing of it is lost
    EXPECT_FALSE(common.has(RunId(3)));                 // it was started after the backup
    EXPECT_FALSE(common.has(RunId(3), RoundId(1)));
  }
  EXPECT_TRUE(Common(restored, restored).has(kRun, RoundId(500)));
}

TEST(HistoryTest, AMemberThatWasAwayForTwoRestoresGoesByTheEarlierFork) {
  const Lineage twice = {history(7, 50, 2, {{kRun, RoundId(200)}}), history(8, 90, 4, {{kRun, RoundId(230)}})};
  EXPECT_FALSE(Common({}, twice).has(kRun, RoundId(201)));
  EXPECT_FALSE(Common({}, twice).has(RunId(3)));
  const Lineage once = {twice[0]};
  EXPECT_TRUE(Common(once, twice).has(kRun, RoundId(230)));
  EXPECT_FALSE(Common(once, twice).has(kRun, RoundId(231)));
  EXPECT_TRUE(Common(once, twice).has(RunId(4)));
}

TEST(HistoryTest, TwoRestoresOfOneBackupShareWhatIsBeforeBoth) {
  const Lineage one = {history(7, 50, 2, {{kRun, RoundId(200)}})};
  const Lineage other = {history(8, 90, 3, {{kRun, RoundId(210)}, {RunId(3), RoundId(4)}})};
  const Common common(one, other);
  EXPECT_TRUE(common.has(kRun, RoundId(200)));
  EXPECT_FALSE(common.has(kRun, RoundId(205)));  // of `one` after its fork: another than the round 205 of `other`
  EXPECT_FALSE(common.has(RunId(3)));
}

TEST(HistoryTest, ALineageThatCannotBeIsRefused) {
  EXPECT_TRUE(check_lineage({}).ok());
  EXPECT_TRUE(check_lineage({history(7, 50, 2, {}), history(8, 51, 2, {})}).ok());
  EXPECT_FALSE(check_lineage({history(0, 50, 2, {})}).ok());
  EXPECT_FALSE(check_lineage({history(7, 50, 2, {}), history(7, 51, 2, {})}).ok());
  EXPECT_FALSE(check_lineage({history(7, 50, 2, {}), history(8, 50, 2, {})}).ok());
  EXPECT_FALSE(check_lineage({history(7, 0, 2, {})}).ok());
  EXPECT_FALSE(check_lineage(Lineage(kHistoriesMax + 1, history(7, 50, 2, {}))).ok());
}

TEST(HistoryTest, AHistoryIsKnownByItsLineage) {
  const Lineage lineage = {history(7, 50, 2, {}), history(8, 90, 2, {})};
  EXPECT_TRUE(holds(lineage, HistoryId(0)));
  EXPECT_TRUE(holds(lineage, HistoryId(7)));
  EXPECT_FALSE(holds(lineage, HistoryId(9)));
  EXPECT_EQ(current_of(lineage), HistoryId(8));
  EXPECT_EQ(began_of(lineage), Epoch(90));
  EXPECT_EQ(current_of({}), HistoryId(0));
}

}  // namespace
}  // namespace fluvial::round

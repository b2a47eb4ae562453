#include "cli/bench_history.h"

#include <gmock/gmock.h>

namespace fluvial::cli {
namespace {

using testing::ElementsAre;
constexpr Fate kF = Fate::kFolded, kS = Fate::kSent, kL = Fate::kLost;

TEST(BenchHistory, NothingMissedIsOneHistory) { EXPECT_THAT(histories_of({}, 1), ElementsAre(History{})); }

TEST(BenchHistory, FewLossesComeFirst) {
  const std::vector<MissedRound> two(2);
  EXPECT_THAT(histories_of(two, 4), ElementsAre(History{kF, kF}, History{kF, kL}, History{kL, kF}, History{kL, kL}));
  EXPECT_TRUE(histories_of(two, 3).empty());
}

TEST(BenchHistory, WhatIsCertainIsNeverLost) {
  const std::vector<MissedRound> missed = {{.certain = true}, {}};
  EXPECT_THAT(histories_of(missed, 2), ElementsAre(History{kF, kF}, History{kF, kL}));
}

TEST(BenchHistory, ThoseThatLoseTheSameAreSideBySide) {
  const std::vector<MissedRound> missed = {{.lends = true}, {.lends = true, .certain = true}};
  EXPECT_THAT(histories_of(missed, 6), ElementsAre(History{kF, kF}, History{kF, kS}, History{kS, kF}, History{kS, kS},
                                                   History{kL, kF}, History{kL, kS}));
  EXPECT_TRUE(histories_of(missed, 5).empty());
  EXPECT_TRUE(same_losses({kF, kS}, {kS, kF}));
  EXPECT_FALSE(same_losses({kF, kS}, {kF, kL}));
}

}  // namespace
}  // namespace fluvial::cli

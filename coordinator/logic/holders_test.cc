#include "coordinator/logic/holders.h"

#include <gmock/gmock.h>

namespace fluvial::coordinator {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;

const TimePoint kStart{std::chrono::hours(100)};
const NodeId kA(7);
const NodeId kB(8);

TEST(Holders, OneMachineThatComesAgainAndAgainIsOne) {
  Holders holders;
  for (std::uint64_t process = 1; process < 20; ++process) {  // restarts
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(holders.came(kA, process, kStart + process * 1min));
  }
  EXPECT_THAT(holders.held_twice(kStart + 20min), IsEmpty());
}

TEST(Holders, TwoMachinesThatTakeTurnsAreTwo) {
  Holders holders;
  holders.came(kB, 5, kStart);
  EXPECT_FALSE(holders.came(kA, 1, kStart));
  EXPECT_FALSE(holders.came(kA, 2, kStart + 1min)) << "a restart";
  EXPECT_FALSE(holders.came(kA, 1, kStart + 2min)) << "a request that was under way";
  EXPECT_TRUE(holders.came(kA, 2, kStart + 3min));
  EXPECT_FALSE(holders.came(kA, 1, kStart + 4min)) << "said once";
  EXPECT_TRUE(holders.are_two(kA, kStart + 5min));
  EXPECT_THAT(holders.held_twice(kStart + 5min), ElementsAre(kA));
}

TEST(Holders, AThiefWhoDrawsANumberEachTimeIsSeenByTheOwnersReturns) {
  Holders holders;
  holders.came(kA, 1, kStart);
  holders.came(kA, 100, kStart + 1min);
  holders.came(kA, 1, kStart + 2min);
  holders.came(kA, 101, kStart + 3min);
  EXPECT_TRUE(holders.came(kA, 1, kStart + 4min));
}

TEST(Holders, AnOwnerThatIsTurnedAwayEachTimeIsEnough) {
  Holders holders;
  holders.came(kA, 1, kStart);
  holders.came(kA, 2, kStart + 1min);  // the thief stays connected
  EXPECT_FALSE(holders.came(kA, 1, kStart + 2min));
  EXPECT_TRUE(holders.came(kA, 1, kStart + 3min));
}

TEST(Holders, ItIsOverWhenTheyTakeTurnsNoLongerOrTheMemberHasAnotherKey) {
  Holders holders;
  for (const std::uint64_t process : {1, 2, 1, 2}) holders.came(kA, process, kStart);
  EXPECT_TRUE(holders.are_two(kA, kStart + 59min));
  EXPECT_FALSE(holders.are_two(kA, kStart + 60min));
  EXPECT_FALSE(holders.came(kA, 2, kStart + 61min)) << "it has outlived the other";
  EXPECT_FALSE(holders.came(kA, 1, kStart + 62min)) << "it begins anew";
  EXPECT_TRUE(holders.came(kA, 2, kStart + 63min));
  holders.forget(kA);
  EXPECT_THAT(holders.held_twice(kStart + 64min), IsEmpty());
}

}  // namespace
}  // namespace fluvial::coordinator

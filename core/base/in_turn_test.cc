#include "core/base/in_turn.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

#include "core/base/rng.h"

namespace fluvial {
namespace {

TEST(InTurn, EachPieceFollowsOnceItAndAllBeforeAreThere) {
  std::vector<std::size_t> followed;
  InTurn turn(4, [&](std::size_t piece) -> Status {
    followed.push_back(piece);
    return {};
  });
  ASSERT_TRUE(turn.done(2).ok());
  EXPECT_TRUE(followed.empty());
  ASSERT_TRUE(turn.done(0).ok());
  EXPECT_EQ(followed, (std::vector<std::size_t>{0}));
  ASSERT_TRUE(turn.done(1).ok());
  EXPECT_EQ(followed, (std::vector<std::size_t>{0, 1, 2}));
  ASSERT_TRUE(turn.done(3).ok());
  EXPECT_EQ(followed, (std::vector<std::size_t>{0, 1, 2, 3}));
}

TEST(InTurn, AfterAFailureNothingFollows) {
  std::vector<std::size_t> followed;
  InTurn turn(4, [&](std::size_t piece) -> Status {
    followed.push_back(piece);
    if (piece == 1) return Error{Code::kResourceExhausted, "the disk is full"};
    return {};
  });
  ASSERT_TRUE(turn.done(1).ok());
  EXPECT_EQ(turn.done(0).error().message, "the disk is full") << "told to whoever was there";
  EXPECT_TRUE(turn.done(2).ok());
  EXPECT_TRUE(turn.done(3).ok());
  EXPECT_EQ(followed, (std::vector<std::size_t>{0, 1}));
}

TEST(InTurn, WhoComesWhileAnotherFollowsGoesOn) {
  std::vector<std::size_t> followed;
  InTurn* whole = nullptr;
  InTurn turn(2, [&](std::size_t piece) -> Status {
    if (piece == 0) std::thread([&] { ASSERT_TRUE(whole->done(1).ok()); }).join();
    followed.push_back(piece);
    return {};
  });
  whole = &turn;
  ASSERT_TRUE(turn.done(0).ok());
  EXPECT_EQ(followed, (std::vector<std::size_t>{0, 1}));
}

TEST(InTurn, ManyThreadsInAnyOrder) {
  constexpr std::size_t kPieces = 2000;
  std::vector<std::size_t> order(kPieces);
  std::iota(order.begin(), order.end(), std::size_t{0});
  Rng rng(3);
  for (std::size_t i = kPieces; i-- > 1;) std::swap(order[i], order[rng.below(i + 1)]);
  std::vector<std::size_t> followed;  // a second caller at a time would be seen by TSan, and by its order
  std::atomic<int> inside = 0;
  InTurn turn(kPieces, [&](std::size_t piece) -> Status {
    EXPECT_EQ(++inside, 1);
    followed.push_back(piece);
    --inside;
    return {};
  });
  std::atomic<std::size_t> at = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (std::size_t i = at++; i < kPieces; i = at++) ASSERT_TRUE(turn.done(order[i]).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(followed.size(), kPieces) << "when the last call has returned";
  EXPECT_TRUE(std::ranges::is_sorted(followed));
}

}  // namespace
}  // namespace fluvial

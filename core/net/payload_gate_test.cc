#include "core/net/payload_gate.h"

#include <gtest/gtest.h>

#include "core/net/test_clock.h"

namespace fluvial::net {
namespace {

using Ticket = std::shared_ptr<PayloadGate::Ticket>;

std::shared_ptr<PayloadGate> gate_of(std::size_t all, std::size_t per_member) {
  return std::make_shared<PayloadGate>(PayloadGate::Limits{all, per_member});
}

TEST(PayloadGate, HoldsBackWhatIsBeyondItsBoundAndWakesIt) {
  const auto gate = gate_of(100, 100);
  int woken = 0;
  const auto again = [&woken] { ++woken; };
  Ticket first = gate->try_begin(1, 60, again);
  Ticket second = gate->try_begin(2, 40, again);
  Ticket third = gate->try_begin(3, 1, again);
  EXPECT_TRUE(first->try_take(60, again));
  EXPECT_TRUE(second->try_take(40, again));
  EXPECT_FALSE(gate->someone_waits());
  EXPECT_FALSE(third->try_take(1, again));
  EXPECT_TRUE(gate->someone_waits());
  EXPECT_FALSE(third->try_take(1, again));
  second.reset();
  EXPECT_EQ(woken, 2);
  EXPECT_EQ(gate->bytes_used(), 60u);
  first.reset();
  EXPECT_EQ(woken, 2) << "once each";
}

TEST(PayloadGate, WhatIsAnnouncedAndDoesNotComeCostsTheOthersNothing) {
  const auto gate = gate_of(100, 100);
  std::vector<Ticket> announced;
  for (std::uint64_t member = 1; member <= 50; ++member) announced.push_back(gate->try_begin(member, 90, [] {}));
  EXPECT_EQ(gate->bytes_used(), 0u);
  const Ticket honest = gate->try_begin(99, 100, [] {});
  EXPECT_TRUE(honest->try_take(50, [] {}));
  EXPECT_TRUE(honest->try_take(50, [] {}));
}

TEST(PayloadGate, AMemberIsBoundedByWhatItAnnouncesAndHoldsNobodyElseBack) {
  const auto gate = gate_of(100, 50);
  int woken = 0;
  Ticket first = gate->try_begin(1, 40, [] {});
  const Ticket second = gate->try_begin(1, 10, [] {});
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(gate->try_begin(1, 1, [&woken] { ++woken; }), nullptr);
  const Ticket other = gate->try_begin(2, 50, [] {});
  ASSERT_NE(other, nullptr);
  EXPECT_TRUE(other->try_take(50, [] {}));
  first.reset();
  EXPECT_EQ(woken, 1);
  EXPECT_NE(gate->try_begin(1, 1, [] {}), nullptr);
}

TEST(PayloadGate, AMembersFirstPassesWhateverItsSize) {
  const auto gate = gate_of(100, 10);
  EXPECT_NE(gate->try_begin(1, 80, [] {}), nullptr);
}

TEST(PayloadGate, NoTwoWaitForEachOther) {
  const auto gate = gate_of(100, 100);
  int woken = 0;
  const auto again = [&woken] { ++woken; };
  Ticket first = gate->try_begin(1, 80, again);
  Ticket second = gate->try_begin(2, 80, again);
  EXPECT_TRUE(first->try_take(40, again));
  EXPECT_TRUE(second->try_take(20, again)) << "then the first can still be finished, and the second after it";
  EXPECT_FALSE(second->try_take(40, again)) << "there is room for it, but then neither could be finished";
  EXPECT_EQ(gate->bytes_used(), 60u);
  EXPECT_TRUE(first->try_take(40, again));
  EXPECT_EQ(woken, 1) << "the first is complete";
  first.reset();
  EXPECT_TRUE(second->try_take(60, again));
}

TEST(PayloadGate, TheRestIsGivenAheadWithinHalfOfTheBound) {
  const auto gate = gate_of(100, 100);
  int woken = 0;
  Ticket first = gate->try_begin(1, 40, [] {});
  const Ticket second = gate->try_begin(2, 20, [] {});
  const Ticket third = gate->try_begin(3, 60, [&woken] { ++woken; });
  EXPECT_TRUE(first->try_take(19, [] {}));
  EXPECT_FALSE(first->try_take_rest()) << "less than half has come";
  EXPECT_TRUE(first->try_take(1, [] {}));
  EXPECT_TRUE(first->try_take_rest());
  EXPECT_EQ(gate->bytes_used(), 40u);
  EXPECT_TRUE(second->try_take(10, [] {}));
  EXPECT_FALSE(second->try_take_rest()) << "that would be 60 of 100";
  EXPECT_EQ(gate->bytes_used(), 50u) << "nothing is taken then";
  EXPECT_TRUE(second->try_take(10, [] {})) << "piece by piece all of it is there for the others";
  EXPECT_FALSE(third->try_take(45, [&woken] { ++woken; }));
  EXPECT_TRUE(third->try_take(40, [] {}));
  first.reset();
  EXPECT_EQ(woken, 1);
  EXPECT_EQ(gate->bytes_used(), 60u) << "what was given ahead comes back with the rest";
}

// A peer that has sent half, and sends no more, is no reason to let the others in beyond what is left.
TEST(PayloadGate, WhatIsGivenAheadIsNotCountedOn) {
  const auto gate = gate_of(100, 100);
  int woken = 0;
  const auto again = [&woken] { ++woken; };
  Ticket stalled = gate->try_begin(1, 40, [] {});
  EXPECT_TRUE(stalled->try_take(20, [] {}));
  EXPECT_TRUE(stalled->try_take_rest());
  std::vector<Ticket> others;
  for (const std::uint64_t member : {2, 3, 4}) others.push_back(gate->try_begin(member, 30, again));
  EXPECT_TRUE(others[0]->try_take(20, again));
  EXPECT_TRUE(others[1]->try_take(20, again));
  EXPECT_FALSE(others[2]->try_take(20, again)) << "there is room for it, but then none of the three could be finished";
  for (Ticket& other : others) {
    const bool is_last = &other == &others.back();
    EXPECT_TRUE(other->try_take(is_last ? 30 : 10, again));
    other.reset();
  }
  EXPECT_GT(woken, 0);
  const Ticket small = gate->try_begin(3, 5, again);  // so that the larger one is not alone
  EXPECT_TRUE(small->try_take(5, again));
  const Ticket larger = gate->try_begin(2, 70, again);
  EXPECT_FALSE(larger->try_take(20, again)) << "it cannot be finished beside what is held";
  woken = 0;
  stalled.reset();
  EXPECT_EQ(woken, 1);
  EXPECT_TRUE(larger->try_take(20, again));
  EXPECT_TRUE(larger->try_take(50, again));
}

TEST(PayloadGate, NobodyGetsItsRestAheadOfThoseThatWait) {
  const auto gate = gate_of(100, 10);
  const Ticket first = gate->try_begin(1, 10, [] {});
  Ticket large = gate->try_begin(2, 100, [] {});
  EXPECT_TRUE(first->try_take(5, [] {}));
  EXPECT_FALSE(large->try_take(96, [] {}));
  EXPECT_FALSE(first->try_take_rest());
  large.reset();
  EXPECT_TRUE(first->try_take_rest());
}

TEST(PayloadGate, OnePayloadLargerThanTheBoundPassesAlone) {
  const auto gate = gate_of(10, 10);
  Ticket large = gate->try_begin(1, 1000, [] {});
  const Ticket small = gate->try_begin(2, 1, [] {});
  EXPECT_TRUE(large->try_take(500, [] {}));
  EXPECT_FALSE(small->try_take(1, [] {}));
  EXPECT_TRUE(large->try_take(500, [] {}));
  large.reset();
  EXPECT_TRUE(small->try_take(1, [] {}));
}

// ---- lanes -------------------------------------------------------------------------------------------------------

class LanesTest : public testing::Test {
 protected:
  static constexpr std::size_t kAll = 400;
  LanesTest() : gate_(std::make_shared<PayloadGate>(PayloadGate::Limits{kAll, kAll}, &clock_)) {}

  Ticket begin(std::uint64_t member, std::size_t bytes) { return gate_->try_begin(member, bytes, again_); }
  bool take(const Ticket& ticket, std::size_t bytes) { return ticket->try_take(bytes, again_); }
  // A payload of which most comes, and the rest seconds after another began to wait: that is of the slowest lane.
  void trickle(std::uint64_t member) {
    const Ticket slow = begin(member, kAll - 10);
    EXPECT_TRUE(take(slow, kAll - 20));
    const Ticket other = begin(1'000, 100);
    EXPECT_FALSE(take(other, 100));
    clock_.advance(std::chrono::seconds(7));
    EXPECT_TRUE(take(slow, 10));
    slow->arrived();
  }

  TestClock clock_;
  std::shared_ptr<PayloadGate> gate_;
  int woken_ = 0;
  PayloadGate::Again again_ = [this] { ++woken_; };
};

TEST_F(LanesTest, WhoLetOthersWaitHoldsNoMoreThanHalfFromThenOn) {
  trickle(1);
  trickle(2);
  const Ticket first = begin(1, 150);
  const Ticket second = begin(2, 150);
  EXPECT_TRUE(take(first, 140));
  EXPECT_FALSE(take(second, 140)) << "both together";
  EXPECT_TRUE(take(second, 50)) << "what is left of their half, and the first can be finished";
  const Ticket honest = begin(3, 200);
  EXPECT_TRUE(take(honest, 200)) << "the other half is the others', though what holds the first may never come back";
}

TEST_F(LanesTest, WhatASlowLaneHoldsIsNotCountedOn) {
  trickle(1);
  const Ticket slow = begin(1, 150);
  EXPECT_TRUE(take(slow, 140));
  const Ticket first = begin(2, 200);
  EXPECT_TRUE(take(first, 150));
  const Ticket second = begin(3, 200);
  EXPECT_FALSE(take(second, 100)) << "neither could be finished before the slow one is";
  EXPECT_TRUE(take(second, 60));
}

TEST_F(LanesTest, ASlowOneThatDoesNotEndIsCountedAsSlow) {
  {
    const Ticket slow = begin(1, 390);
    EXPECT_TRUE(take(slow, 380));
    const Ticket other = begin(2, 100);
    EXPECT_FALSE(take(other, 100));
    clock_.advance(std::chrono::seconds(7));
  }  // its session ended
  Ticket again = begin(1, 390);
  const Ticket other = begin(2, 10);
  EXPECT_TRUE(take(other, 10));
  EXPECT_FALSE(take(again, 250));
  again.reset();
  clock_.advance(2 * PayloadLanes::kForgivenAfter);
  const Ticket later = begin(1, 300);
  EXPECT_TRUE(take(later, 300));
}

TEST_F(LanesTest, WhatTheGateLetsWaitIsNobodysFault) {
  {
    Ticket first = begin(1, 300);
    EXPECT_TRUE(take(first, 200));
    const Ticket second = begin(2, 300);
    EXPECT_TRUE(take(second, 100));
    EXPECT_FALSE(take(second, 100));
    clock_.advance(std::chrono::seconds(7));  // in which the second waits for the first, and holds 100
    first.reset();
    EXPECT_TRUE(take(second, 100));
    EXPECT_TRUE(take(second, 100));
    second->arrived();
  }
  const Ticket other = begin(3, 10);
  EXPECT_TRUE(take(other, 10));
  const Ticket again = begin(2, 300);
  EXPECT_TRUE(take(again, 300));
}

TEST_F(LanesTest, WhileNobodyWaitsAPayloadMayTakeItsTime) {
  {
    const Ticket alone = begin(1, 390);
    EXPECT_TRUE(take(alone, 380));
    clock_.advance(std::chrono::hours(1));
    EXPECT_TRUE(take(alone, 10));
    alone->arrived();
  }
  const Ticket other = begin(2, 10);
  EXPECT_TRUE(take(other, 10));
  const Ticket again = begin(1, 390);
  EXPECT_TRUE(take(again, 390));
}

TEST_F(LanesTest, NobodyOfASlowerLaneHurriesTheOthers) {
  trickle(1);
  const Ticket honest = begin(2, 390);
  EXPECT_TRUE(take(honest, 380));
  const Ticket slow = begin(1, 100);
  EXPECT_FALSE(take(slow, 100));
  EXPECT_TRUE(gate_->someone_waits());
  EXPECT_FALSE(honest->is_in_the_way());
  const Ticket other = begin(3, 100);
  EXPECT_FALSE(take(other, 100));
  EXPECT_TRUE(honest->is_in_the_way());
}

TEST_F(LanesTest, WhoWaitsForItsOwnPayloadsHurriesNobody) {
  const Ticket first = begin(1, 300);
  EXPECT_TRUE(take(first, 100));
  EXPECT_EQ(begin(1, 300), nullptr);
  EXPECT_FALSE(gate_->someone_waits());
  EXPECT_FALSE(first->is_in_the_way());
}

TEST_F(LanesTest, ASlowPayloadLargerThanItsLanePassesAloneAndKeepsNobodyOut) {
  trickle(1);
  const Ticket large = begin(1, 390);
  EXPECT_TRUE(take(large, 100)) << "nothing else is here";
  const Ticket honest = begin(2, 300);
  EXPECT_TRUE(take(honest, 300)) << "that the larger one cannot be finished beside it is no reason to wait";
  EXPECT_FALSE(take(large, 290));
}

TEST(PayloadGate, ATicketOutlivesItsGate) {
  auto gate = gate_of(10, 10);
  Ticket ticket = gate->try_begin(1, 5, [] {});
  EXPECT_TRUE(ticket->try_take(5, [] {}));
  gate.reset();
  ticket.reset();
}

}  // namespace
}  // namespace fluvial::net

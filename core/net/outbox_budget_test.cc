#include "core/net/outbox_budget.h"

#include <gtest/gtest.h>

#include "core/net/test_clock.h"

namespace fluvial::net {
namespace {

class OutboxBudgetTest : public testing::Test {
 protected:
  struct Peer {
    std::shared_ptr<OutboxBudget::Account> account;
    int ended = 0;
    std::size_t kept = 0;
  };
  std::shared_ptr<Peer> open() {
    auto peer = std::make_shared<Peer>();
    peer->account = budget_->open([raw = peer.get()](std::size_t bytes) { ++raw->ended, raw->kept = bytes; });
    return peer;
  }
  void wait() { clock_.advance(OutboxBudget::kPatience); }

  TestClock clock_;
  std::shared_ptr<OutboxBudget> budget_ = std::make_shared<OutboxBudget>(100, &clock_);
};

TEST_F(OutboxBudgetTest, BeyondTheBoundTheSessionThatKeepsMostEnds) {
  const auto large = open(), small = open(), newcomer = open();
  large->account->add(60);
  small->account->add(40);
  wait();
  EXPECT_EQ(large->ended, 0) << "there is room";
  newcomer->account->add(1);
  EXPECT_EQ(large->ended, 1);
  EXPECT_EQ(large->kept, 60u);
  EXPECT_EQ(small->ended, 0);
  EXPECT_EQ(newcomer->ended, 0);
  EXPECT_EQ(budget_->bytes_used(), 41u);
  large->account->add(1'000);
  EXPECT_EQ(budget_->bytes_used(), 41u) << "it is ending";
  large->account->taken(60);
  EXPECT_EQ(budget_->bytes_used(), 41u);
}

TEST_F(OutboxBudgetTest, AsManyEndAsItTakes) {
  const auto first = open(), second = open(), third = open(), large = open();
  for (const auto& peer : {first, second, third}) peer->account->add(30);
  wait();
  large->account->add(90);
  EXPECT_EQ(first->ended + second->ended + third->ended, 3);
  EXPECT_EQ(large->ended, 0) << "it has just come";
  EXPECT_EQ(budget_->bytes_used(), 90u);
}

TEST_F(OutboxBudgetTest, ABurstEndsNobody) {
  std::vector<std::shared_ptr<Peer>> peers;
  for (int i = 0; i < 50; ++i) peers.push_back(open());
  for (const auto& peer : peers) peer->account->add(10);
  for (const auto& peer : peers) peer->account->taken(10);
  for (const auto& peer : peers) EXPECT_EQ(peer->ended, 0);
  EXPECT_EQ(budget_->bytes_used(), 0u);
}

// A backlog of which something is taken now and then is a backlog; what was taken does not count for what was not.
TEST_F(OutboxBudgetTest, WhatCountsIsTheOldestMessageThatWaits) {
  const auto trickling = open(), reading = open(), other = open();
  trickling->account->add(30);
  reading->account->add(50);
  clock_.advance(OutboxBudget::kPatience / 2);
  trickling->account->add(10);
  reading->account->add(20);
  clock_.advance(OutboxBudget::kPatience / 2);
  trickling->account->taken(10);
  reading->account->taken(50);
  other->account->add(60);
  EXPECT_EQ(trickling->ended, 1);
  EXPECT_EQ(reading->ended, 0) << "what it has not read is not old";
  EXPECT_EQ(budget_->bytes_used(), 80u);
}

TEST_F(OutboxBudgetTest, WhoIsPatientIsLookedAtAgain) {
  const auto slow = open();
  slow->account->add(150);
  EXPECT_EQ(slow->ended, 0);
  wait();
  slow->account->add(1);
  EXPECT_EQ(slow->ended, 1);
}

TEST_F(OutboxBudgetTest, ASessionThatIsGoneKeepsNothing) {
  auto gone = open();
  gone->account->add(90);
  gone.reset();
  EXPECT_EQ(budget_->bytes_used(), 0u);
  const auto here = open();
  here->account->add(90);
  wait();
  here->account->add(10);
  EXPECT_EQ(here->ended, 0);
}

}  // namespace
}  // namespace fluvial::net

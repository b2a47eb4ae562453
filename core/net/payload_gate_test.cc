#include "core/net/payload_gate.h"

#include <gtest/gtest.h>

namespace fluvial::net {
namespace {

TEST(PayloadGate, HoldsBackWhatIsBeyondItsBoundAndWakesIt) {
  const auto gate = std::make_shared<PayloadGate>(100);
  int woken = 0;
  const auto again = [&woken] { ++woken; };
  std::shared_ptr<void> first = gate->try_take(60, again);
  std::shared_ptr<void> second = gate->try_take(40, again);
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(gate->try_take(1, again), nullptr);
  EXPECT_EQ(gate->try_take(1, again), nullptr);
  second.reset();
  EXPECT_EQ(woken, 2);
  EXPECT_EQ(gate->bytes_used(), 60u);
  first.reset();
  EXPECT_EQ(woken, 2) << "once each";
}

TEST(PayloadGate, OnePayloadLargerThanTheBoundPassesAlone) {
  const auto gate = std::make_shared<PayloadGate>(10);
  std::shared_ptr<void> large = gate->try_take(1000, [] {});
  ASSERT_NE(large, nullptr);
  EXPECT_EQ(gate->try_take(1, [] {}), nullptr);
  large.reset();
  EXPECT_NE(gate->try_take(1, [] {}), nullptr);
}

TEST(PayloadGate, ATicketOutlivesItsGate) {
  auto gate = std::make_shared<PayloadGate>(10);
  std::shared_ptr<void> ticket = gate->try_take(5, [] {});
  gate.reset();
  ticket.reset();
}

}  // namespace
}  // namespace fluvial::net

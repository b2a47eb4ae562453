#include "core/net/strangers.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace fluvial::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

AddressKey address(int number) { return address_key("192.0.2." + std::to_string(number) + ":1"); }

TEST(Strangers, ANewcomerTakesThePlaceOfTheOneThatHasBeenStillLongest) {
  const TimePoint start{};
  Strangers strangers(100, 3);
  std::vector<Strangers::Ticket> tickets;
  for (int i = 0; i < 3; ++i) tickets.push_back(*strangers.arrive(address(1), start + milliseconds(i)).ticket);
  strangers.moved(tickets[0], start + milliseconds(10));
  const auto newcomer = strangers.arrive(address(1), start + seconds(1));
  ASSERT_TRUE(newcomer.ticket);
  EXPECT_EQ(newcomer.gives_way, tickets[1]) << "the first has come further since";
  EXPECT_EQ(strangers.size(), 3u);
}

TEST(Strangers, HoweverManyAreHeldOpenHonestOnesGetIn) {
  const TimePoint start{};
  Strangers strangers(1'024, 256);
  for (int i = 0; i < 256; ++i) ASSERT_TRUE(strangers.arrive(address(1), start).ticket);
  TimePoint now = start + seconds(1);
  std::vector<Strangers::Ticket> honest;
  for (int i = 0; i < 30; ++i) {
    now += milliseconds(5);
    const auto arrival = strangers.arrive(address(1), now);
    ASSERT_TRUE(arrival.ticket);
    ASSERT_TRUE(arrival.gives_way);
    for (const Strangers::Ticket ticket : honest) EXPECT_NE(arrival.gives_way, ticket);
    honest.push_back(*arrival.ticket);
  }
}

TEST(Strangers, AnAddressAtItsBoundTakesNoOthersPlace) {
  const TimePoint start{};
  Strangers strangers(100, 2);
  const auto other = strangers.arrive(address(2), start).ticket;
  strangers.arrive(address(1), start + seconds(1));
  strangers.arrive(address(1), start + seconds(1));
  const auto third = strangers.arrive(address(1), start + seconds(10));
  ASSERT_TRUE(third.gives_way);
  EXPECT_NE(third.gives_way, other) << "though it has been still for longer";
}

TEST(Strangers, AtTheBoundOfAllTheAddressThatHasMostMakesRoom) {
  const TimePoint start{};
  Strangers strangers(4, 4);
  const auto single = strangers.arrive(address(2), start).ticket;
  for (int i = 0; i < 3; ++i) strangers.arrive(address(1), start + seconds(1));
  const auto newcomer = strangers.arrive(address(3), start + seconds(10));
  ASSERT_TRUE(newcomer.ticket);
  ASSERT_TRUE(newcomer.gives_way);
  EXPECT_NE(newcomer.gives_way, single);
}

TEST(Strangers, InACrowdOfWhichNoneIsStillTheNewcomerIsRefused) {
  const TimePoint start{};
  Strangers strangers(100, 2);
  strangers.arrive(address(1), start);
  const auto second = strangers.arrive(address(1), start).ticket;
  const auto early = strangers.arrive(address(1), start + Strangers::kPatience - milliseconds(1));
  EXPECT_FALSE(early.ticket);
  EXPECT_FALSE(early.gives_way);
  strangers.left(*second);
  EXPECT_TRUE(strangers.arrive(address(1), start + milliseconds(1)).ticket);
}

TEST(Strangers, GoingOnAndOnBuysNoTime) {
  const TimePoint start{};
  Strangers strangers(100, 2);
  const auto busy = strangers.arrive(address(1), start).ticket;
  for (int i = 1; i <= 100; ++i) strangers.moved(*busy, start + i * milliseconds(10));
  strangers.arrive(address(1), start + milliseconds(500));
  EXPECT_EQ(strangers.arrive(address(1), start + seconds(2)).gives_way, busy);
}

TEST(Strangers, WhoHasLeftIsForgotten) {
  Strangers strangers(10, 10);
  for (int i = 0; i < 100; ++i) strangers.left(*strangers.arrive(address(i), TimePoint()).ticket);
  EXPECT_EQ(strangers.size(), 0u);
  strangers.left(7);
  strangers.moved(7, TimePoint());
}

}  // namespace
}  // namespace fluvial::net

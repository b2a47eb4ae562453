#include "core/net/address.h"

#include <gtest/gtest.h>

#include <string>

namespace fluvial::net {
namespace {

using std::chrono::seconds;

TEST(AddressKey, IsAnIPv4AddressOrTheFirstHalfOfAnIPv6One) {
  EXPECT_EQ(address_key("192.0.2.7:443"), address_key("192.0.2.7:51234"));
  EXPECT_NE(address_key("192.0.2.7:443"), address_key("192.0.2.8:443"));
  EXPECT_EQ(address_key("[2001:db8:1:2::7]:443"), address_key("[2001:db8:1:2:ffff::9]:443"));
  EXPECT_NE(address_key("[2001:db8:1:2::7]:443"), address_key("[2001:db8:1:3::7]:443"));
  EXPECT_EQ(address_key("[::ffff:192.0.2.7]:443"), address_key("192.0.2.7:443"));
  EXPECT_NE(address_key("[::7]:443"), address_key("0.0.0.0:443"));
  EXPECT_EQ(address_key("a peer that left"), address_key(""));
}

TEST(Pace, LetsABurstGoAndThenAsManyAsItsRate) {
  const TimePoint start{};
  Pace pace(10, 3, start);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(pace.try_take(start), Duration::zero());
  EXPECT_EQ(pace.try_take(start), std::chrono::milliseconds(100));
  EXPECT_EQ(pace.try_take(start), std::chrono::milliseconds(100)) << "asking in vain costs nothing";
  EXPECT_EQ(pace.try_take(start + std::chrono::milliseconds(100)), Duration::zero());
  EXPECT_EQ(pace.try_take(start + std::chrono::hours(1)), Duration::zero());
  for (int i = 0; i < 2; ++i) EXPECT_EQ(pace.try_take(start + std::chrono::hours(1)), Duration::zero());
  EXPECT_GT(pace.try_take(start + std::chrono::hours(1)), Duration::zero()) << "a rest saves up the burst alone";
}

TEST(Pace, WhoGoesAnywayWaitsLongerEachTime) {
  const TimePoint start{};
  Pace pace(10, 1, start);
  EXPECT_EQ(pace.take(start), Duration::zero());
  EXPECT_EQ(pace.take(start), std::chrono::milliseconds(100));
  EXPECT_EQ(pace.take(start), std::chrono::milliseconds(200));
}

TEST(AddressPaces, ChargesEachAddressForItself) {
  const TimePoint start{};
  AddressPaces paces(1, 2);
  const AddressKey bad = address_key("192.0.2.7:1");
  EXPECT_TRUE(paces.take(bad, start));
  EXPECT_TRUE(paces.take(bad, start));
  EXPECT_FALSE(paces.take(bad, start));
  EXPECT_TRUE(paces.take(address_key("192.0.2.8:1"), start));
  EXPECT_TRUE(paces.take(bad, start + seconds(1)));
}

TEST(AddressPaces, KeepsABoundedNumber) {
  const TimePoint start{};
  AddressPaces paces(1, 1, 10);
  for (int i = 0; i < 100; ++i) paces.take(address_key("192.0.2." + std::to_string(i) + ":1"), start);
  EXPECT_EQ(paces.size(), 10u);
  EXPECT_TRUE(paces.take(address_key("198.51.100.1:1"), start + seconds(2))) << "those that have rested are forgotten";
  EXPECT_EQ(paces.size(), 1u);
}

}  // namespace
}  // namespace fluvial::net

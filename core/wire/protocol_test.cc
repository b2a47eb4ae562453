#include "core/wire/protocol.h"

#include <gtest/gtest.h>

#include <string>

namespace fluvial::wire {
namespace {

v1::Hello hello(std::uint32_t oldest, std::uint32_t newest) {
  v1::Hello hello;
  hello.set_protocol_min(oldest);
  hello.set_protocol_max(newest);
  hello.set_software("fluvial child");
  return hello;
}

v1::Welcome welcome(std::uint32_t protocol) {
  v1::Welcome welcome;
  welcome.set_protocol(protocol);
  welcome.set_software("fluvial parent");
  return welcome;
}

std::string refusal(const Protocols& parent, const v1::Hello& child) {
  const Result<std::uint32_t> chosen = choose_protocol(parent, child, "fluvial parent");
  EXPECT_FALSE(chosen.ok());
  if (chosen.ok()) return "";
  EXPECT_EQ(chosen.error().code, Code::kFailedPrecondition);
  return chosen.error().message;
}

TEST(Protocol, TheNewestThatBothSpeak) {
  EXPECT_EQ(choose_protocol({2, 3}, hello(2, 3), "").value(), 3U);
  EXPECT_EQ(choose_protocol({2, 3}, hello(2, 2), "").value(), 2U) << "a child of the version before";
  EXPECT_EQ(choose_protocol({2, 3}, hello(3, 4), "").value(), 3U) << "a child of the version after";
  EXPECT_EQ(choose_protocol({2, 2}, hello(1, 9), "").value(), 2U);
}

// From 0.2 on; what an N of kProtocol must speak so that N and N-1 understand each other.
TEST(Protocol, ThisVersionSpeaksTheOneBeforeAsWell) {
  EXPECT_LE(kProtocolOldest, kProtocol);
  if (kProtocol > 2) EXPECT_LE(kProtocolOldest, kProtocol - 1);
}

TEST(Protocol, WithoutACommonOneItSaysWhoIsToBeUpdated) {
  EXPECT_EQ(
      refusal({2, 2}, hello(1, 1)),
      "the child (fluvial child) speaks protocol 1, the parent (fluvial parent) speaks protocol 2: update the child "
      "first");
  EXPECT_EQ(
      refusal({2, 2}, hello(3, 4)),
      "the child (fluvial child) speaks protocol 3 to 4, the parent (fluvial parent) speaks protocol 2: update the "
      "parent first");
  EXPECT_NE(refusal({2, 3}, hello(0, 0)).find("update the child"), std::string::npos) << "one that names none";
  EXPECT_FALSE(refusal({2, 3}, hello(3, 2)).empty()) << "a range that is none";
}

TEST(Protocol, APeersNameForItselfIsCutAndPrintable) {
  v1::Hello odd = hello(9, 9);
  odd.set_software("evil\n\x1b[31m" + std::string(10'000, 'x'));
  const std::string line = refusal({2, 2}, odd);
  EXPECT_LT(line.size(), 300U);
  for (const char c : line) EXPECT_GE(c, ' ');
}

TEST(Protocol, AChildTakesOnlyWhatItAskedFor) {
  EXPECT_TRUE(check_protocol({2, 3}, welcome(2), "fluvial child").ok()) << "a parent of the version before";
  EXPECT_TRUE(check_protocol({2, 3}, welcome(3), "fluvial child").ok());
  const Status older = check_protocol({2, 3}, welcome(1), "fluvial child");
  ASSERT_FALSE(older.ok());
  EXPECT_EQ(
      older.error().message,
      "the child (fluvial child) speaks protocol 2 to 3, the parent (fluvial parent) speaks protocol 1: update the "
      "parent first");
  const Status newer = check_protocol({2, 3}, welcome(4), "fluvial child");
  ASSERT_FALSE(newer.ok());
  EXPECT_NE(newer.error().message.find("update the child first"), std::string::npos);
}

}  // namespace
}  // namespace fluvial::wire

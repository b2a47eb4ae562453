#include "core/identity/names.h"

#include <gtest/gtest.h>

namespace fluvial::identity {
namespace {

TEST(NodeName, Rule) {
  for (const char* good : {"a", "7", "hospital-a", "eu.west_1", "a--"}) EXPECT_TRUE(check_node_name(good).ok()) << good;
  EXPECT_TRUE(check_node_name(std::string(63, 'a')).ok());
  for (const char* bad : {"", "-a", ".a", "_a", "A", "a b", "a/b", "a\n", "\xc3\xa4", "a,b"}) {
    EXPECT_FALSE(check_node_name(bad).ok()) << bad;
  }
  EXPECT_FALSE(check_node_name(std::string(64, 'a')).ok());
  EXPECT_FALSE(check_node_name(std::string_view("a\0b", 3)).ok());
}

TEST(NodeName, MessageStaysOneShortPrintableLine) {
  const Status refused = check_node_name("two\nlines\x1b[31m" + std::string(5000, 'x'));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  EXPECT_EQ(refused.error().message.find_first_of("\n\x1b"), std::string::npos);
  EXPECT_LT(refused.error().message.size(), 300U);
}

TEST(TokenName, OfOneMemberOrOfSeveral) {
  EXPECT_TRUE(check_token_name("hospital-a").ok());
  EXPECT_TRUE(check_token_name("eu-*").ok());
  EXPECT_TRUE(check_token_name(std::string(50, 'a') + "-*").ok());
  EXPECT_FALSE(check_token_name(std::string(51, 'a') + "-*").ok());
  for (const char* bad : {"*", "-*", "eu*", "eu-*-*", "EU-*", "eu-**"}) EXPECT_FALSE(check_token_name(bad).ok()) << bad;
  const std::string serial = "4f000000000000000000a1b2c3d4e5f6";
  EXPECT_EQ(member_name("hospital-a", serial), "hospital-a");
  EXPECT_EQ(member_name("eu-*", serial), "eu-a1b2c3d4e5f6");
  EXPECT_TRUE(check_node_name(member_name(std::string(50, 'a') + "-*", serial)).ok());
  EXPECT_TRUE(is_for("eu-*", "eu-a1b2c3d4e5f6"));
  for (const char* other : {"eu", "eu-", "eu-*", "us-a1b2c3d4e5f6", "eu-a1b2c3d4e5f67"}) {
    EXPECT_FALSE(is_for("eu-*", other)) << other;
  }
  EXPECT_TRUE(is_for("a", "a"));
  EXPECT_FALSE(is_for("a", "a-a1b2c3d4e5f6"));
}

TEST(Region, Rule) {
  for (const char* good : {"", "eu", "eu/west", "1/2/3/4/5/6/7/8"}) EXPECT_TRUE(check_region(good).ok()) << good;
  for (const char* bad : {"/", "/eu", "eu/", "eu//west", "EU", "eu/-", "1/2/3/4/5/6/7/8/9"}) {
    EXPECT_FALSE(check_region(bad).ok()) << bad;
  }
}

TEST(Role, NamesThereAndBack) {
  for (const Role role : {Role::kCoordinator, Role::kAggregator, Role::kSite}) {
    EXPECT_EQ(role_from_name(role_name(role)).value(), role);
  }
  EXPECT_FALSE(role_from_name("Site").ok());
  EXPECT_FALSE(role_from_name("").ok());
}

TEST(MemberUri, ThereAndBack) {
  const Member member{Role::kSite, NodeId(7), "hospital-a"};
  EXPECT_EQ(member_uri(member), "fluvial://site/7/hospital-a");
  EXPECT_EQ(member_from_uri("fluvial://site/7/hospital-a").value(), member);
  EXPECT_EQ(describe(member), "site 7 (hospital-a)");
  EXPECT_EQ(member_from_uri("fluvial://aggregator/4294967295/x").value().node, NodeId(4294967295));
}

TEST(MemberUri, StrictlyTheTextThatIsWritten) {
  for (const char* bad :
       {"", "fluvial://", "fluvial://site/7", "fluvial://site/7/", "fluvial://site/0/a", "fluvial://site/07/a",
        "fluvial://site/+7/a", "fluvial://site/-7/a", "fluvial://site/4294967296/a", "fluvial://site/7/a/b",
        "fluvial://Site/7/a", "fluvial://worker/7/a", "Fluvial://site/7/a", "https://site/7/a", "fluvial://site/7/A",
        "fluvial://site//a", " fluvial://site/7/a", "fluvial://site/7/a "}) {
    EXPECT_FALSE(member_from_uri(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace fluvial::identity

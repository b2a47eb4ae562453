#include "core/identity/token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

namespace fluvial::identity {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kPin = "sha256:" + std::string(64, '5');
const WallTime kNow = WallTime(std::chrono::seconds(1'900'000'000));

TokenRequest request() {
  return {Role::kSite, "hospital-a", "eu/west", 5000, kNow + std::chrono::minutes(10), "coordinator.example:7443"};
}

NewToken make() { return make_token(request(), kPin).value(); }

TEST(Token, TextCarriesWhatTheClientNeeds) {
  const NewToken made = make();
  const std::string text = made.token.to_text();
  EXPECT_TRUE(text.starts_with("fluvial-1."));
  const EnrolmentToken parsed = EnrolmentToken::parse("  " + text + "\n").value();
  EXPECT_EQ(parsed.role, Role::kSite);
  EXPECT_EQ(parsed.name, "hospital-a");
  EXPECT_EQ(parsed.pin, kPin);
  EXPECT_EQ(parsed.address, "coordinator.example:7443");
  EXPECT_EQ(parsed.expires_at, kNow + std::chrono::minutes(10));
  EXPECT_TRUE(redeem(made.record, parsed.secret, kNow).ok());
}

TEST(Token, WorksWithoutAnAddress) {
  TokenRequest bare = request();
  bare.address.clear();
  bare.role = Role::kAggregator;
  const EnrolmentToken parsed = EnrolmentToken::parse(make_token(bare, kPin).value().token.to_text()).value();
  EXPECT_EQ(parsed.address, "");
  EXPECT_EQ(parsed.role, Role::kAggregator);
}

TEST(Token, RecordHoldsNoSecret) {
  const NewToken made = make();
  EXPECT_EQ(made.record.secret_hash, token_hash(made.token.secret));
  EXPECT_EQ(made.record.id, token_id(made.record.secret_hash));
  EXPECT_EQ(made.record.id.size(), 12U);
  EXPECT_EQ(made.record.region, "eu/west");
  EXPECT_EQ(made.record.weight_max, 5000U);
  EXPECT_FALSE(made.record.used_at.has_value());
  EXPECT_NE(make().record.id, made.record.id);
}

TEST(Token, AnyChangedCharacterIsATypoAndNotAWrongToken) {
  const std::string text = make().token.to_text();
  const std::size_t start = std::string_view("fluvial-1.").size();
  for (std::size_t i = start; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = changed[i] == 'A' ? 'B' : 'A';
    const auto parsed = EnrolmentToken::parse(changed);
    ASSERT_FALSE(parsed.ok()) << i;
    EXPECT_THAT(parsed.error().message, HasSubstr("damaged")) << i;
    EXPECT_THAT(parsed.error().message, Not(HasSubstr(changed.substr(start, 12)))) << "the secret leaked";
  }
  for (std::size_t size = start; size < text.size(); ++size) {
    EXPECT_FALSE(EnrolmentToken::parse(text.substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(EnrolmentToken::parse(text + "A").ok());
  EXPECT_FALSE(EnrolmentToken::parse(text + "=").ok());
}

TEST(Token, WhatIsNoTokenIsNamedSo) {
  EXPECT_THAT(EnrolmentToken::parse("").error().message, HasSubstr("not an enrolment token"));
  EXPECT_THAT(EnrolmentToken::parse("hello").error().message, HasSubstr("not an enrolment token"));
  for (const char* mark : {"\xef\xbb\xbf", "\xff\xfe", "\xfe\xff"}) {
    EXPECT_THAT(EnrolmentToken::parse(mark + make().token.to_text()).error().message, HasSubstr("without a BOM"));
  }
  EXPECT_THAT(EnrolmentToken::parse("fluvial-2.abc").error().message, HasSubstr("another version"));
  EXPECT_THAT(EnrolmentToken::parse("fluvial-1." + std::string(100'000, 'A')).error().message, HasSubstr("damaged"));
}

TEST(Token, RefusesToMakeWhatItCouldNotRead) {
  TokenRequest bad = request();
  bad.name = "Hospital A";
  EXPECT_FALSE(make_token(bad, kPin).ok());
  bad = request();
  bad.region = "eu//west";
  EXPECT_FALSE(make_token(bad, kPin).ok());
  bad = request();
  bad.role = Role::kCoordinator;
  EXPECT_FALSE(make_token(bad, kPin).ok());
  EXPECT_FALSE(make_token(request(), "sha256:55").ok());
  for (const char* address : {"host", ":1", "host:", "host:0", "host:65536", "host:1x", "ho st:1"}) {
    bad = request();
    bad.address = address;
    EXPECT_FALSE(make_token(bad, kPin).ok()) << address;
  }
  bad = request();
  bad.address = "[::1]:7443";
  EXPECT_TRUE(make_token(bad, kPin).ok());
}

TEST(Redeem, WrongExpiredUsed) {
  const NewToken made = make();
  const Status wrong = redeem(made.record, make().token.secret, kNow);
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error(), (Error{Code::kUnauthenticated, "wrong token"}));

  const Status expired = redeem(made.record, made.token.secret, made.record.expires_at);
  ASSERT_FALSE(expired.ok());
  EXPECT_EQ(expired.error().code, Code::kUnauthenticated);
  EXPECT_THAT(expired.error().message, HasSubstr("expired at 2030-03-17 17:56:40 UTC"));
  EXPECT_TRUE(redeem(made.record, made.token.secret, made.record.expires_at - std::chrono::milliseconds(1)).ok());

  TokenRecord used = made.record;
  used.used_at = kNow;
  used.uses = 1;
  const Status again = redeem(used, made.token.secret, kNow);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, Code::kUnauthenticated);
  EXPECT_THAT(again.error().message, HasSubstr("was used at 2030-03-17 17:46:40 UTC"));

  // Without the secret nobody learns anything about the record.
  EXPECT_EQ(redeem(used, Secret(), kNow).error().message, "wrong token");
}

TEST(Redeem, SeveralTimesByWish) {
  TokenRequest several = request();
  several.uses_max = 2;
  const NewToken made = make_token(several, kPin).value();
  EXPECT_EQ(made.record.name, "hospital-a-*");
  EXPECT_EQ(EnrolmentToken::parse(made.token.to_text()).value().name, "hospital-a-*");
  TokenRecord record = made.record;
  record.uses = 1;
  record.used_at = kNow;
  EXPECT_TRUE(redeem(record, made.token.secret, kNow).ok());
  record.uses = 2;
  EXPECT_THAT(redeem(record, made.token.secret, kNow).error().message, HasSubstr("was used 2 times, the last at 2030"));
  record.uses = 0;
  record.revoked_at = kNow;
  EXPECT_THAT(redeem(record, made.token.secret, kNow).error().message, HasSubstr("was revoked at 2030-03-17 17:46:40"));
  for (const std::uint64_t uses : {std::uint64_t{0}, kTokenUsesMax + 1}) {
    several.uses_max = uses;
    EXPECT_FALSE(make_token(several, kPin).ok()) << uses;
  }
}

TEST(Secret, FromBytesWantsExactly32) {
  EXPECT_TRUE(Secret::from_bytes(Secret::random().bytes()).ok());
  EXPECT_FALSE(Secret::from_bytes(Secret::random().bytes().first(31)).ok());
  EXPECT_FALSE(Secret::from_bytes({}).ok());
}

}  // namespace
}  // namespace fluvial::identity

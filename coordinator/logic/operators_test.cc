#include "coordinator/logic/operators.h"

#include <gmock/gmock.h>

namespace fluvial::coordinator {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

const WallTime kNow{seconds(1'000'000)};

Operators with_anna(Access access) {
  Operators operators;
  operators.put({.node = NodeId(9), .name = "anna", .access = access, .enrolled_at = kNow, .certificate_serial = "a1"});
  return operators;
}

TEST(Operators, AnOperatorHasTheAccessThatTheJournalSays) {
  EXPECT_EQ(with_anna(Access::kRead).access_of(NodeId(9), "anna").value(), Access::kRead);
  EXPECT_EQ(with_anna(Access::kFull).access_of(NodeId(9), "anna").value(), Access::kFull);
}

TEST(Operators, NobodyElseHasAny) {
  const Operators operators = with_anna(Access::kFull);
  EXPECT_EQ(operators.access_of(NodeId(8), "anna").error().code, Code::kPermissionDenied);
  EXPECT_THAT(operators.access_of(NodeId(9), "bert").error().message, HasSubstr("--role operator"));
}

TEST(Operators, ARevokedOneHasNoneUntilItIsEnrolledAnew) {
  Operators operators = with_anna(Access::kFull);
  operators.revoked(NodeId(9), kNow);
  EXPECT_THAT(operators.access_of(NodeId(9), "anna").error().message, HasSubstr("is revoked"));
  operators.put({.node = NodeId(9), .name = "anna", .access = Access::kRead, .certificate_serial = "b2"});
  EXPECT_EQ(operators.access_of(NodeId(9), "anna").value(), Access::kRead);
}

TEST(Operators, ARemovedOneHasNoneEither) {
  Operators operators = with_anna(Access::kRead);
  operators.removed(NodeId(9), kNow);
  EXPECT_FALSE(operators.access_of(NodeId(9), "anna").ok());
  EXPECT_EQ(operators.find(NodeId(9))->removed_at, kNow);
  EXPECT_EQ(operators.named("anna"), operators.find(NodeId(9)));
}

TEST(Operators, TheEndIsThatOfTheNewestCertificate) {
  Operators operators = with_anna(Access::kRead);
  operators.seen(NodeId(9), "a1", kNow + seconds(10), kNow);
  operators.renewed(NodeId(9), "b2", kNow + seconds(50));
  operators.seen(NodeId(9), "a1", kNow + seconds(10), kNow + seconds(5));
  EXPECT_EQ(operators.find(NodeId(9))->certificate_ends_at, kNow + seconds(50));
  EXPECT_EQ(operators.find(NodeId(9))->seen_at, kNow + seconds(5));
}

TEST(Operators, OnlyReadAndFullAreGiven) {
  EXPECT_EQ(access_from_name("read").value(), Access::kRead);
  EXPECT_EQ(access_from_name("full").value(), Access::kFull);
  EXPECT_FALSE(access_from_name("none").ok());
  EXPECT_THAT(access_from_name("root").error().message, HasSubstr("expected read or full"));
}

}  // namespace
}  // namespace fluvial::coordinator

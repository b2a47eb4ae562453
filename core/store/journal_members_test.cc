// Tokens for several members, revoked tokens, and removed members.
#include "core/store/journal_test_support.h"

namespace fluvial::store {
namespace {

class JournalMembers : public JournalOfMembers {
 protected:
  Result<NodeRow> redeem(const std::string& id, const std::string& name, const std::string& serial = "serial") {
    const NodeRow node{NodeId(), Role::kSite, name, "eu", 1000, serial, at(1000), "", {}, {}, ""};
    return journal_->redeem_token(digest_of(id), node, at(1000));
  }
  std::string refusal(const std::string& id, const std::string& name) {
    const auto redeemed = redeem(id, name);
    return redeemed.ok() ? "" : redeemed.error().message;
  }
  TokenRow token(const std::string& id) { return journal_->find_token(digest_of(id)).value().value(); }
};

TEST_F(JournalMembers, ATokenForSeveralServesSoManyAndNoMore) {
  add_token("t", "eu-*", 2);
  crash_and_reopen();
  EXPECT_EQ(token("t").uses_max, 2U);
  ASSERT_TRUE(redeem("t", "eu-1").ok());
  EXPECT_NE(refusal("t", "eu-1").find("takes over from none"), std::string::npos) << "another key of the same name";
  EXPECT_NE(refusal("t", "us-1").find("is for site 'eu-*'"), std::string::npos);
  EXPECT_NE(refusal("t", "eu-").find("is for site 'eu-*'"), std::string::npos);
  crash_and_reopen();
  EXPECT_EQ(token("t").uses, 1U) << "what was refused did not count";
  ASSERT_TRUE(redeem("t", "eu-2").ok());
  EXPECT_NE(refusal("t", "eu-3").find("was used at"), std::string::npos);
  EXPECT_EQ(journal_->nodes()->size(), 2U);
  EXPECT_EQ(journal_->enrolments("eu-1").value(), 1U);
  add_token("anew", "eu-1");
  ASSERT_TRUE(redeem("anew", "eu-1").ok());
  EXPECT_EQ(journal_->enrolments("eu-1").value(), 2U);
}

TEST_F(JournalMembers, ARevokedTokenServesNobody) {
  add_token("t", "eu-*", 3);
  add_token("once", "a");
  ASSERT_TRUE(redeem("t", "eu-1").ok());
  ASSERT_TRUE(journal_->revoke_token("t", at(500)).ok());
  ASSERT_TRUE(journal_->revoke_token("t", at(600)).ok());
  ASSERT_TRUE(journal_->revoke_token("once", at(500)).ok());
  crash_and_reopen();
  EXPECT_EQ(token("t").revoked_at, at(500));
  EXPECT_NE(refusal("t", "eu-2").find("was revoked at"), std::string::npos);
  EXPECT_NE(refusal("once", "a").find("was revoked at"), std::string::npos);
  EXPECT_EQ(journal_->nodes()->size(), 1U) << "who has enrolled with it stays";
  EXPECT_EQ(journal_->revoke_token("none", at(1)).error().code, Code::kNotFound);
  add_token("used", "b");
  ASSERT_TRUE(redeem("used", "b").ok());
  EXPECT_EQ(journal_->revoke_token("used", at(1)).error().code, Code::kFailedPrecondition);
}

TEST_F(JournalMembers, ARemovedMemberIsRevokedUntilItEnrolsAgain) {
  add_token("first", "a");
  const NodeId id = redeem("first", "a").value().id;
  ASSERT_TRUE(journal_->remove(id, at(7)).ok());
  crash_and_reopen();
  EXPECT_EQ(journal_->node(id).value()->removed_at, at(7));
  EXPECT_EQ(journal_->node(id).value()->revoked_at, at(7));
  add_token("second", "a");
  const NodeRow again = redeem("second", "a").value();
  EXPECT_EQ(again.id, id);
  EXPECT_EQ(again.removed_at, std::nullopt);
  EXPECT_EQ(again.revoked_at, std::nullopt);
  EXPECT_EQ(journal_->node_named("a").value(), again);
  EXPECT_EQ(journal_->node_named("b").value(), std::nullopt);
  EXPECT_EQ(journal_->remove(NodeId(99), at(1)).error().code, Code::kNotFound);
}

TEST_F(JournalMembers, EnrollingAnewVoidsTheLeaseThatTheOldKeyKnows) {
  add_token("first", "a");
  const NodeId id = redeem("first", "a").value().id;
  const LeaseRow before = journal_->grant(id, NodeId(0)).value();
  EXPECT_EQ(journal_->grant(id, NodeId(0)).value(), before);
  add_token("second", "a");
  ASSERT_TRUE(redeem("second", "a", "serial-2").ok());
  crash_and_reopen();
  EXPECT_EQ(journal_->leases().value(), (std::vector<LeaseRow>{{id, id, before.epoch}})) << "nobody's child";
  const LeaseRow after = journal_->grant(id, NodeId(0)).value();
  EXPECT_GT(after.epoch, before.epoch);
  EXPECT_EQ(journal_->leases().value(), std::vector<LeaseRow>{after}) << "it has one at any time";
}

}  // namespace
}  // namespace fluvial::store

// Which certificates and keys are refused, and since when.
#include "core/store/certificate_book.h"

#include "core/digest/sha256.h"
#include "core/store/journal_test_support.h"

namespace fluvial::store {
namespace {

class CertificateBookTest : public JournalOfMembers {
 protected:
  CertificateBook book() { return CertificateBook(*journal_); }
  Result<NodeRow> redeem(const std::string& token, const std::string& name, const std::string& serial,
                         std::string_view key, std::int64_t when = 1000) {
    const NodeRow node{NodeId(), Role::kSite, name, "eu", 1000, serial, at(when), "", {}, {}, ""};
    return journal_->redeem_token(digest_of(token), node, at(when), {as_byte_span(key), at(9000)});
  }
  NodeId enrol(const std::string& name, const std::string& serial, std::string_view key, std::int64_t when = 1000) {
    add_token("token of " + serial, name);
    const auto row = redeem("token of " + serial, name, serial, key, when);
    EXPECT_TRUE(row.ok()) << row.error().message;
    return row.ok() ? row->id : NodeId();
  }
  bool saw(const std::string& serial, NodeId node, std::string_view key, std::int64_t when = 1100) {
    return book().saw({serial, node, as_byte_span(key), at(9000)}, at(when)).value().refuses_more;
  }
  Status renew(const std::string& serial, const std::string& renews, NodeId node, std::string_view key) {
    return book().renewed({serial, node, as_byte_span(key), at(1200), at(9500), renews}, at(1200));
  }
  CertificateSeen adopt(const std::string& serial, NodeId node, std::string_view key, std::int64_t issued) {
    return book().saw({serial, node, as_byte_span(key), at(9000), at(issued), true}, at(5000)).value();
  }
  std::string refused_why(const std::string& serial) { return book().find(serial).value().value().refused_why; }
  std::string refusal(const std::string& token, const std::string& name, const std::string& serial,
                      std::string_view key) {
    const auto redeemed = redeem(token, name, serial, key);
    return redeemed.ok() ? "" : redeemed.error().message;
  }
};

TEST_F(CertificateBookTest, WhatIsIssuedIsThereWithItsKey) {
  const NodeId a = enrol("a", "s1", "key 1");
  crash_and_reopen();
  const CertificateRow row = book().find("s1").value().value();
  EXPECT_EQ(row.node, a);
  EXPECT_EQ(as_text(row.key), "key 1");
  EXPECT_EQ(row.issued_at, at(1000));
  EXPECT_EQ(row.ends_at, at(9000));
  EXPECT_EQ(row.used_at, std::nullopt);
  EXPECT_EQ(row.refused_since, std::nullopt);
  EXPECT_EQ(book().current_of(a).value(), row);
  EXPECT_EQ(book().of_key(as_byte_span(std::string_view("key 1"))).value(), std::vector<CertificateRow>{row});
  EXPECT_EQ(book().find("s2").value(), std::nullopt);
  EXPECT_EQ(book().current_of(NodeId(99)).value(), std::nullopt);
  EXPECT_FALSE(saw("s1", a, "key 1", 1100));
  EXPECT_FALSE(saw("s1", a, "key 1", 1200));
  EXPECT_EQ(book().find("s1").value()->used_at, at(1100)) << "the first use counts";
}

TEST_F(CertificateBookTest, ACertificateIsSupersededWhenItsSuccessorIsFirstUsed) {
  const NodeId a = enrol("a", "s1", "key 1");
  saw("s1", a, "key 1");
  enrol("a", "s2", "key 2", 1200);
  const std::uint64_t number = book().denials_number().value();
  EXPECT_EQ(refused_why("s1"), "") << "the answer may be lost on its way";
  EXPECT_TRUE(saw("s2", a, "key 2", 1300));
  crash_and_reopen();
  EXPECT_EQ(refused_why("s1"), kRefusedSuperseded);
  EXPECT_EQ(book().find("s1").value()->refused_since, at(1300));
  EXPECT_GT(book().denials_number().value(), number);
  EXPECT_EQ(refused_why("s2"), "");
  EXPECT_EQ(book().refused(at(2000)).value().size(), 1U);
  EXPECT_TRUE(book().refused(at(9000)).value().empty()) << "it has ended";
  EXPECT_FALSE(book().find("s1").value()->refuses_key());
  enrol("a", "s3", "key 1", 1400);  // nobody said that this key was stolen
}

TEST_F(CertificateBookTest, ARevokedKeyStaysRefusedWhoeverEnrolsAnew) {
  const NodeId a = enrol("a", "s1", "key 1");
  saw("s1", a, "key 1");
  enrol("a", "s2", "key 2", 1050);
  saw("s2", a, "key 2");
  ASSERT_TRUE(journal_->revoke(a, at(1500)).ok());
  add_token("since", "a");
  crash_and_reopen();
  EXPECT_NE(refusal("since", "a", "s3", "key 2").find("was revoked at 1970-01-01 00:25:00 UTC"), std::string::npos);
  EXPECT_NE(refusal("since", "a", "s3", "key 1").find("stays refused: enrol with another key"), std::string::npos)
      << "the keys before it, too";
  add_token("for b", "b");
  EXPECT_NE(refusal("for b", "b", "s4", "key 2"), "") << "under another name, too";
  EXPECT_EQ(refusal("since", "a", "s3", "key 3"), "");
  crash_and_reopen();
  EXPECT_EQ(refused_why("s1"), kRefusedRevoked);
  EXPECT_EQ(refused_why("s2"), kRefusedRevoked) << "the node is back, the key is not";
  EXPECT_EQ(book().current_of(a).value()->serial, "s3");
  EXPECT_EQ(journal_->node(a).value()->revoked_at, std::nullopt);
}

TEST_F(CertificateBookTest, ATokenFromBeforeTheRevocationLiftsNothing) {
  add_token("before", "a");
  add_token("several", "a-*", 3);
  add_token("other", "b");
  const NodeId a = enrol("a", "s1", "key 1");
  ASSERT_TRUE(journal_->revoke(a, at(1500)).ok());
  crash_and_reopen();
  EXPECT_NE(refusal("before", "a", "s2", "key 2")
                .find("was revoked at 1970-01-01 00:25:00 UTC: a was revoked then; ask for a token made since"),
            std::string::npos);
  EXPECT_EQ(journal_->node(a).value()->revoked_at, at(1500));
  EXPECT_EQ(refusal("several", "a-1", "s3", "key 3"), "") << "it takes over from nobody";
  EXPECT_EQ(refusal("other", "b", "s4", "key 4"), "");
  add_token("since", "a");
  EXPECT_EQ(refusal("since", "a", "s2", "key 2"), "");
}

TEST_F(CertificateBookTest, ARemovedMembersKeyStaysRefused) {
  const NodeId a = enrol("a", "s1", "key 1");
  ASSERT_TRUE(journal_->remove(a, at(1500)).ok());
  EXPECT_EQ(refused_why("s1"), kRefusedRemoved);
  add_token("since", "a");
  EXPECT_NE(refusal("since", "a", "s2", "key 1").find("was removed at"), std::string::npos);
}

TEST_F(CertificateBookTest, AMemberFromBeforeTheBookIsKnownByItsSerialAndThenByItsKey) {
  add_token("first", "a");
  const NodeId a = redeem("first", "a", "s1", "").value().id;
  EXPECT_EQ(book().current_of(a).value(), std::nullopt);
  ASSERT_FALSE(saw("s1", a, "key 1"));
  EXPECT_EQ(as_text(book().current_of(a).value()->key), "key 1");

  add_token("for b", "b");
  const NodeId b = redeem("for b", "b", "s5", "").value().id;
  ASSERT_TRUE(journal_->revoke(b, at(1500)).ok());
  EXPECT_EQ(refused_why("s5"), kRefusedRevoked) << "though its key was never seen";

  add_token("for c", "c");
  const NodeId c = redeem("for c", "c", "s7", "").value().id;
  enrol("c", "s8", "key 8");
  EXPECT_TRUE(saw("s8", c, "key 8"));
  EXPECT_EQ(refused_why("s7"), kRefusedSuperseded);
}

TEST_F(CertificateBookTest, ARenewalKeepsTheKeyAndRefusesNothing) {
  const NodeId a = enrol("a", "s1", "key 1");
  saw("s1", a, "key 1");
  const std::uint64_t number = book().denials_number().value();
  ASSERT_TRUE(renew("s2", "s1", a, "key 1").ok());
  ASSERT_TRUE(renew("s2", "s1", a, "key 1").ok()) << "the answer was lost, and it asks again";
  EXPECT_FALSE(saw("s2", a, "key 1", 1300));
  crash_and_reopen();
  EXPECT_EQ(refused_why("s1"), "") << "the session that was made with it goes on";
  EXPECT_EQ(book().denials_number().value(), number);
  const CertificateRow row = book().current_of(a).value().value();
  EXPECT_EQ(row.serial, "s2");
  EXPECT_EQ(row.renews, "s1");
  EXPECT_EQ(row.used_at, at(1300));
  EXPECT_EQ(book().current().value(), std::vector<CertificateRow>{row});

  enrol("a", "s3", "key 3", 1400);
  EXPECT_EQ(renew("s4", "s2", a, "key 1").error().code, Code::kUnauthenticated) << "another key has taken its place";
  EXPECT_TRUE(saw("s3", a, "key 3", 1500));
  EXPECT_EQ(refused_why("s1"), kRefusedSuperseded) << "all of the key before";
  EXPECT_EQ(refused_why("s2"), kRefusedSuperseded);
}

TEST_F(CertificateBookTest, ARevokedMemberRenewsNothing) {
  const NodeId a = enrol("a", "s1", "key 1");
  ASSERT_TRUE(journal_->revoke(a, at(1500)).ok());
  EXPECT_EQ(renew("s2", "s1", a, "key 1").error().code, Code::kUnauthenticated);
  EXPECT_EQ(book().find("s2").value(), std::nullopt);
}

TEST_F(CertificateBookTest, AMemberFromBeforeTheBookRenewsWithTheKeyThatItShows) {
  add_token("first", "a");
  const NodeId a = redeem("first", "a", "s1", "").value().id;
  ASSERT_TRUE(renew("s2", "s1", a, "key 1").ok());
  EXPECT_EQ(as_text(book().find("s1").value()->key), "key 1");
  EXPECT_EQ(book().current_of(a).value()->serial, "s2");
}

// Whose key nobody knew when it was revoked: its node is what is refused.
TEST_F(CertificateBookTest, ARevokedMemberFromBeforeTheBookRenewsNothing) {
  add_token("first", "a");
  const NodeId a = redeem("first", "a", "s1", "").value().id;
  ASSERT_TRUE(journal_->revoke(a, at(1500)).ok());
  EXPECT_EQ(renew("s2", "s1", a, "key 1").error().code, Code::kUnauthenticated);
  EXPECT_EQ(book().find("s2").value(), std::nullopt);
}

TEST_F(CertificateBookTest, EndedCertificatesAreForgottenWhenTheKeyIsNotRefused) {
  const NodeId a = enrol("a", "s1", "key 1");
  const NodeId b = enrol("b", "r1", "key of b");
  ASSERT_TRUE(journal_->revoke(b, at(1500)).ok());
  const WallTime later = at(9000) + std::chrono::days(31);
  const std::string_view key = "key 1";
  ASSERT_TRUE(book().renewed({"s2", a, as_byte_span(key), later, later + std::chrono::hours(1), "s1"}, later).ok());
  EXPECT_EQ(book().find("s1").value(), std::nullopt);
  EXPECT_EQ(refused_why("r1"), kRefusedRevoked) << "for ever";
}

TEST_F(CertificateBookTest, AfterARestoreTheNewerCertificateIsAdopted) {
  const NodeId a = enrol("a", "s1", "key 1");
  EXPECT_EQ(adopt("s9", a, "key 1", 2000), (CertificateSeen{false, false})) << "it has been renewed since the backup";
  EXPECT_EQ(book().current_of(a).value()->serial, "s9");
  EXPECT_EQ(adopt("s7", a, "key 2", 1500), (CertificateSeen{false, false})) << "older than what the journal has";
  EXPECT_EQ(book().current_of(a).value()->serial, "s9");
  EXPECT_EQ(adopt("s8", a, "key 3", 3000), (CertificateSeen{true, true})) << "enrolled anew since";
  crash_and_reopen();
  EXPECT_EQ(as_text(book().current_of(a).value()->key), "key 3");
  EXPECT_EQ(refused_why("s1"), kRefusedSuperseded);
  EXPECT_EQ(refused_why("s9"), kRefusedSuperseded);
}

TEST_F(CertificateBookTest, WithoutARestoreNoneIsAdopted) {
  const NodeId a = enrol("a", "s1", "key 1");
  const CertificateShown shown{"s9", a, as_byte_span(std::string_view("key 9")), at(9000), at(3000)};
  EXPECT_EQ(book().saw(shown, at(5000)).value(), (CertificateSeen{false, false}));
  EXPECT_EQ(book().current_of(a).value()->serial, "s1");
  EXPECT_EQ(refused_why("s1"), "");
}

// By their moments either may be the later one: a certificate has no more than a second.
TEST_F(CertificateBookTest, AfterARestoreACertificateThatTheJournalKnowsIsNoNewerOne) {
  const NodeId a = enrol("a", "s1", "key 1");
  saw("s1", a, "key 1");
  enrol("a", "s2", "key 2");
  const auto comes = [&](const std::string& serial, std::string_view key) {
    return book().saw({serial, a, as_byte_span(key), at(9000), at(1000), true}, at(5000));
  };
  EXPECT_EQ(comes("s1", "key 1").error().code, Code::kUnauthenticated) << "though its successor was never used";
  EXPECT_TRUE(comes("s2", "key 2").ok());
  EXPECT_EQ(book().current_of(a).value()->serial, "s2");
  EXPECT_EQ(refused_why("s1"), kRefusedSuperseded);
}

TEST_F(CertificateBookTest, WhatTheLostHistoryRefusedIsTakenOver) {
  const NodeId a = enrol("a", "s1", "key 1");
  const NodeId b = enrol("b", "r1", "key of b", 1900);
  const Digest key = sha256(as_byte_span(std::string_view("key 7")));
  const Refusals earlier{{a, b}, {key}, {"5e"}};
  const std::uint64_t number = book().denials_number().value();
  EXPECT_TRUE(book().take_over(earlier, at(1800), at(4000)).value());
  EXPECT_FALSE(book().take_over(earlier, at(1800), at(4100)).value()) << "said again it changes nothing";
  crash_and_reopen();
  EXPECT_EQ(book().denials_number().value(), number + 1);
  EXPECT_EQ(journal_->node(a).value()->revoked_at, at(4000));
  EXPECT_EQ(refused_why("s1"), kRefusedRevoked);
  EXPECT_EQ(journal_->node(b).value()->revoked_at, std::nullopt) << "it has enrolled since the restore";
  EXPECT_TRUE(book().taken_over().value().keys.contains(key));
  EXPECT_TRUE(book().taken_over().value().serials.contains("5e"));
  add_token("for c", "c");
  EXPECT_NE(refusal("for c", "c", "s7", "key 7").find("was revoked after the backup"), std::string::npos);
}

TEST_F(CertificateBookTest, ACertificateIsOfOneMember) {
  const NodeId a = enrol("a", "s1", "key 1");
  const NodeId b = enrol("b", "s2", "key 2");
  EXPECT_EQ(book().saw({"s1", b, as_byte_span(std::string_view("key 1")), at(9000)}, at(1)).error().code,
            Code::kUnauthenticated);
  EXPECT_FALSE(saw("s0", a, "key 0")) << "not its current one: it supersedes nothing";
  EXPECT_EQ(refused_why("s1"), "");
  EXPECT_EQ(book().all().value().size(), 3U);
}

}  // namespace
}  // namespace fluvial::store

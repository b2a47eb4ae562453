#include "coordinator/service/authorship.h"

#include <gtest/gtest.h>

#include "coordinator/service/order_signer.h"
#include "coordinator/service/round_audit.h"
#include "core/digest/sha256.h"
#include "core/store/audit_log.h"
#include "core/store/certificate_book.h"
#include "core/store/memory_file_system.h"
#include "core/store/sqlite.h"
#include "core/tree/orders.h"

namespace fluvial::coordinator {
namespace {

// Two sites behind an aggregator, and what that one brings of them.
class AuthorshipTest : public testing::Test {
 protected:
  AuthorshipTest() {
    store::RunRow run;
    run.plan.name = "digits";
    run.schema = round::Schema::make({{"w", round::DType::kF32, {3}}}).value();
    run.initial_model = base_;
    EXPECT_TRUE(journal_->create_run(run).ok());
    first_ = enrol("first", key_);
    second_ = enrol("second", other_);
    aggregator_.node = NodeId(50);
    aggregator_.role = Role::kAggregator;
  }
  SiteId enrol(const std::string& name, const identity::PrivateKey& key) {
    const Digest secret = sha256(as_byte_span(name));
    EXPECT_TRUE(journal_->add_token({name, secret, Role::kSite, name, "eu", 1000, WallTime::max(), {}}).ok());
    store::NodeRow row;
    row.role = Role::kSite;
    row.name = name;
    row.certificate_serial = name;
    row.weight_max = 1000;
    const Buffer der = identity::PublicKey::of(key).der();
    return journal_->redeem_token(secret, row, WallTime(), {der.span(), WallTime::max()}).value().id;
  }
  void enrol_anew(const identity::PrivateKey& key) {
    const Digest secret = sha256(as_byte_span("again"));
    ASSERT_TRUE(journal_->add_token({"again", secret, Role::kSite, "first", "eu", 1000, WallTime::max(), {}}).ok());
    store::NodeRow row;
    row.role = Role::kSite;
    row.name = "first";
    row.certificate_serial = "again";
    row.enrolled_at = kAnewAt;
    const Buffer der = identity::PublicKey::of(key).der();
    ASSERT_EQ(journal_->redeem_token(secret, row, kAnewAt, {der.span(), WallTime::max()}).value().id, first_);
  }
  round::Contribution given(SiteId site, std::uint64_t weight = 100) const {
    return {site, Epoch(5), weight, sha256(as_byte_span("update")), 0, {}, Incarnation(2), 8};
  }
  round::Contribution signed_by(const identity::PrivateKey& key, round::Contribution what,
                                std::uint64_t round = 1) const {
    const std::string body = wire::contribution_body(RunId(1), RoundId(round), base_, what);
    what.signature = identity::sign(key, wire::kContributionKind, as_byte_span(body)).value();
    return what;
  }
  std::vector<SiteId> forged(const std::vector<round::Contribution>& contributions, std::uint64_t round = 1) {
    round::ContributorSet set;
    for (const round::Contribution& one : contributions) EXPECT_TRUE(set.add(one).ok());
    std::vector<SiteId> sites;
    for (const round::Refusal& one : authorship_.forged(aggregator_, {RunId(1), RoundId(round), base_, set})) {
      EXPECT_EQ(one.error.code, Code::kUnauthenticated) << one.error.message;
      sites.push_back(one.site);
    }
    return sites;
  }
  // The round, with these contributors, as the coordinator commits it.
  store::CommitRow commit(const std::vector<round::Contribution>& contributions, std::uint64_t round = 1) {
    round::AttemptRecord attempt{RunId(1), RoundId(round), AttemptId(1), journal_->next_epoch().value(), {}, 30, {}};
    attempt.base = {RunId(1), ModelVersion(round - 1), round == 1 ? base_ : sha256(as_byte_span("model")), 12};
    store::CommitRow row;
    row.record.run = RunId(1);
    row.record.round = RoundId(round);
    row.record.attempt = AttemptId(1);
    row.record.model = {RunId(1), ModelVersion(round), sha256(as_byte_span("model")), 12};
    for (const round::Contribution& one : contributions) {
      attempt.participants.push_back({one.site, one.lease, 1000});
      EXPECT_TRUE(row.record.contributors.add(one).ok());
    }
    row.committed_at = kAnewAt + std::chrono::minutes(1);
    row.keys = authorship_.keys_of(row.record.contributors);
    row.master = sha256(as_byte_span("master"));
    row.order = kept(signer_.commit(row.record, false, signed_master_.value_or(row.master)));
    EXPECT_TRUE(journal_->open_attempt(attempt).ok());
    EXPECT_TRUE(journal_->commit(row).ok());
    return row;
  }
  AuditedRound audited(const identity::PublicKey& coordinator) {
    return audit_rounds(*journal_, coordinator, {RunId(1), RoundId(1), 10}).value().at(0);
  }

  static constexpr WallTime kAnewAt{std::chrono::hours(1)};
  const identity::PrivateKey key_ = identity::PrivateKey::generate().value();
  const identity::PrivateKey other_ = identity::PrivateKey::generate().value();
  const identity::PrivateKey coordinators_ = identity::PrivateKey::generate().value();
  const Digest base_ = sha256(as_byte_span("initial"));
  store::MemoryFileSystem files_;
  std::unique_ptr<store::CoordinatorJournal> journal_ =
      store::CoordinatorJournal::open(files_, "/journal.sqlite").value();
  Authorship authorship_{*journal_};
  OrderSigner signer_{coordinators_, Epoch(1)};
  std::optional<Digest> signed_master_;  // another than the journal holds
  tree::Child aggregator_;
  SiteId first_;
  SiteId second_;
};

TEST_F(AuthorshipTest, WhatASiteSignedCounts) {
  EXPECT_TRUE(forged({signed_by(key_, given(first_)), signed_by(other_, given(second_))}).empty());
}

// The file that people get, exchanged together with its digest.
TEST_F(AuthorshipTest, AnotherMasterThanWasSignedIsAFault) {
  signed_master_ = sha256(as_byte_span("what was committed"));
  commit({signed_by(key_, given(first_))});
  const AuditedRound audit = audited(identity::PublicKey::of(coordinators_));
  ASSERT_EQ(audit.faults.size(), 1u);
  EXPECT_NE(audit.faults[0].find("another commit"), std::string::npos) << audit.faults[0];
}

// The model that an old update is of is that of a round that is pruned, or never was.
TEST_F(AuthorshipTest, AnAuditSaysWhatItCouldNotCheck) {
  round::Contribution old = signed_by(other_, given(second_), 8);
  ASSERT_TRUE(forged({old}, 8).empty()) << "by that its key is known";
  old.base = ModelVersion(7);
  old.admitted = ModelVersion(8);
  commit({old});
  const AuditedRound audit = audited(identity::PublicKey::of(coordinators_));
  EXPECT_FALSE(audit.contributions_checked);
  ASSERT_FALSE(audit.faults.empty());
  EXPECT_NE(audit.faults.back().find("admitted on model version 8"), std::string::npos) << audit.faults.back();
}

TEST_F(AuthorshipTest, AnAggregatorCanNeitherReweighNorInventNorExchange) {
  round::Contribution heavier = signed_by(key_, given(first_));
  heavier.weight = 1000;
  EXPECT_EQ(forged({heavier}), std::vector{first_});
  round::Contribution exchanged = signed_by(key_, given(first_));
  exchanged.digest[0] ^= std::byte{1};
  EXPECT_EQ(forged({exchanged}), std::vector{first_});
  EXPECT_EQ(forged({signed_by(key_, given(first_), 2)}), std::vector{first_}) << "of another round";
  EXPECT_EQ(forged({signed_by(key_, given(second_))}), std::vector{second_}) << "by another site's key";
  EXPECT_EQ(forged({heavier, signed_by(other_, given(second_))}), std::vector{first_}) << "the honest one counts";
}

TEST_F(AuthorshipTest, ASiteOfAnOlderVersionIsBelievedUntilItHasSigned) {
  EXPECT_TRUE(forged({given(first_)}).empty());
  EXPECT_TRUE(forged({signed_by(key_, given(first_))}).empty());
  EXPECT_EQ(forged({given(first_)}), std::vector{first_}) << "its signature was taken off";
  EXPECT_TRUE(forged({given(second_)}).empty());
}

TEST_F(AuthorshipTest, ThatASiteSignsIsRememberedAcrossRestarts) {
  const round::Contribution own = signed_by(key_, given(first_));
  ASSERT_TRUE(forged({own}).empty());
  commit({own});
  Authorship restarted(*journal_);
  ASSERT_TRUE(restarted.load().ok());
  round::ContributorSet bare;
  ASSERT_TRUE(bare.add(given(first_)).ok());
  EXPECT_EQ(restarted.forged(aggregator_, {RunId(1), RoundId(1), base_, bare}).size(), 1u);
}

// What began to come in one window may be counted in another: the journal keeps its signature all the same.
TEST_F(AuthorshipTest, KeysAreKnownForAsLongAsWhatTheySignedMayCount) {
  const round::Contribution first = signed_by(key_, given(first_), 2);
  const round::Contribution second = signed_by(other_, given(second_), 1);
  ASSERT_TRUE(forged({first}, 2).empty());
  ASSERT_TRUE(forged({second}, 1).empty()) << "it began before, and is whole later";
  round::ContributorSet both;
  ASSERT_TRUE(both.add(first).ok() && both.add(second).ok());
  EXPECT_EQ(authorship_.keys_of(both).size(), 2u);
  ASSERT_TRUE(forged({signed_by(key_, given(first_), 100)}, 100).empty());
  EXPECT_EQ(authorship_.keys_of(both).size(), 0u) << "not for ever";
}

TEST_F(AuthorshipTest, ANewKeyReplacesTheOneBefore) {
  ASSERT_TRUE(forged({signed_by(key_, given(first_))}).empty());
  const identity::PrivateKey renewed = identity::PrivateKey::generate().value();
  enrol_anew(renewed);
  EXPECT_TRUE(forged({signed_by(renewed, given(first_))}).empty());
  commit({signed_by(renewed, given(first_))});
  EXPECT_TRUE(forged({signed_by(renewed, given(first_), 2)}, 2).empty());
  EXPECT_EQ(forged({signed_by(key_, given(first_), 2)}, 2), std::vector{first_}) << "that round opened since";
}

// Or an honest aggregator would pass for a forger once.
TEST_F(AuthorshipTest, WhatASiteSignedBeforeItEnrolledAnewIsItsOwn) {
  const round::Contribution own = signed_by(key_, given(first_));
  enrol_anew(identity::PrivateKey::generate().value());
  EXPECT_TRUE(forged({own}).empty());
  EXPECT_EQ(forged({signed_by(other_, given(first_))}), std::vector{first_});
  round::Contribution heavier = own;
  heavier.weight = 1000;
  EXPECT_EQ(forged({heavier}), std::vector{first_});
  commit({own});
  EXPECT_TRUE(audited(identity::PublicKey::of(coordinators_)).faults.empty());
}

TEST_F(AuthorshipTest, WhatAKeySignedBeforeItWasRevokedIsNotTheSitesOwn) {
  const round::Contribution own = signed_by(key_, given(first_));
  ASSERT_TRUE(journal_->revoke(first_, kAnewAt).ok());
  enrol_anew(identity::PrivateKey::generate().value());
  EXPECT_EQ(forged({own}), std::vector{first_});
}

// What an aggregator says of a site's contradiction puts the site in quarantine, so it must show it.
class ContradictionTest : public AuthorshipTest {
 protected:
  ContradictionTest() { another_.digest[0] ^= std::byte{1}; }
  std::optional<Code> code_of(const std::vector<round::Contribution>& contents, std::uint64_t own = 1) const {
    const Status is = authorship_.is_contradiction(RunId(1), RoundId(own), first_, contents);
    return is.ok() ? std::optional<Code>() : is.error().code;
  }
  const round::Contribution own_ = signed_by(key_, given(first_));
  round::Contribution another_ = given(first_);  // another content of the same submission
};

TEST_F(ContradictionTest, IsWhatASiteHasSignedTwiceAlone) {
  EXPECT_FALSE(code_of({own_, signed_by(key_, another_)}));
  EXPECT_EQ(code_of({own_, signed_by(other_, another_)}), Code::kUnauthenticated) << "made up";
  EXPECT_EQ(code_of({signed_by(other_, another_), own_}), Code::kUnauthenticated);
  EXPECT_EQ(code_of({own_, signed_by(key_, another_, 2)}), Code::kUnauthenticated) << "of another round";
  EXPECT_EQ(code_of({}), Code::kInvalidArgument) << "said, and not shown";
  EXPECT_EQ(code_of({own_}), Code::kInvalidArgument);
  EXPECT_EQ(code_of({own_, own_}), Code::kInvalidArgument);
  round::Contribution newer = another_;
  newer.submission += 1;
  EXPECT_EQ(code_of({own_, signed_by(key_, newer)}), Code::kInvalidArgument) << "it had to encode anew";
  round::Contribution restarted = another_;
  restarted.incarnation = Incarnation(3);
  EXPECT_EQ(code_of({own_, signed_by(key_, restarted)}), Code::kInvalidArgument);
  const round::Contribution others = signed_by(other_, given(second_));
  EXPECT_EQ(code_of({others, others}), Code::kInvalidArgument) << "another site's";
}

// Also of a site that has signed nothing yet: it may be new, and anybody can leave a signature out.
TEST_F(ContradictionTest, WhatIsUnsignedShowsNothing) {
  EXPECT_EQ(code_of({given(first_), another_}), Code::kUnauthenticated);
  EXPECT_EQ(code_of({own_, another_}), Code::kUnauthenticated);
}

TEST_F(ContradictionTest, BySignaturesFromBeforeAndAfterItEnrolledAnewInTheRound) {
  const identity::PrivateKey renewed = identity::PrivateKey::generate().value();
  enrol_anew(renewed);
  EXPECT_FALSE(code_of({own_, signed_by(renewed, another_)}));
  commit({own_});
  EXPECT_FALSE(code_of({own_, signed_by(renewed, another_)})) << "the round may be over when it is looked at";
  round::Contribution later = signed_by(key_, given(first_), 2);
  EXPECT_TRUE(code_of({later, signed_by(renewed, another_, 2)}, 2)) << "that round opened since";
}

TEST_F(ContradictionTest, OfAnEarlierRoundIsKnownByItsVersions) {
  commit({own_});
  const Digest base = journal_->last_commit(RunId(1)).value()->record.model.digest;
  const auto signed_for_two = [&](round::Contribution what) {
    what.base = ModelVersion(1);
    what.admitted = ModelVersion(3);
    const std::string body = wire::contribution_body(RunId(1), RoundId(2), base, what);
    what.signature = identity::sign(key_, wire::kContributionKind, as_byte_span(body)).value();
    return what;
  };
  EXPECT_FALSE(code_of({signed_for_two(given(first_)), signed_for_two(another_)}, 2));
  EXPECT_EQ(code_of({signed_for_two(given(first_)), signed_for_two(another_)}, 1), Code::kInvalidArgument);
}

TEST_F(AuthorshipTest, ACommitIsAuditedFromTheJournalAlone) {
  const round::Contribution own = signed_by(key_, given(first_));
  ASSERT_TRUE(forged({own, given(second_)}).empty());
  commit({own, given(second_)});
  const AuditedRound honest = audited(identity::PublicKey::of(coordinators_));
  EXPECT_EQ(honest.contributors, 2u);
  EXPECT_EQ(honest.contributors_signed, 1u);
  EXPECT_TRUE(honest.commit_signed && honest.contributions_checked);
  EXPECT_TRUE(honest.faults.empty()) << honest.faults.front();
  EXPECT_EQ(audited(identity::PublicKey::of(key_)).faults.size(), 1u) << "by another coordinator";
}

TEST_F(AuthorshipTest, AnAuditFindsWhatWasChangedInTheJournal) {
  const round::Contribution own = signed_by(key_, given(first_));
  ASSERT_TRUE(forged({own}).empty());
  round::Contribution reweighed = own;
  reweighed.weight = 999;
  commit({reweighed});
  const AuditedRound audit = audited(identity::PublicKey::of(coordinators_));
  ASSERT_EQ(audit.faults.size(), 1u);
  EXPECT_NE(audit.faults[0].find("site " + std::to_string(first_.value())), std::string::npos) << audit.faults[0];
}

// An update says of which round it is, under its site's signature; that it is in one commit, only the commits say.
TEST_F(AuthorshipTest, AnAuditFindsAnUpdateThatCountsTwice) {
  const round::Contribution own = signed_by(key_, given(first_));
  ASSERT_TRUE(forged({own}).empty());
  commit({own});
  round::Contribution next = given(first_);
  next.base = next.admitted = ModelVersion(1);
  commit({next}, 2);
  const auto audit_both = [&] {
    return audit_rounds(*journal_, identity::PublicKey::of(coordinators_), {RunId(1), RoundId(1), 10}).value();
  };
  EXPECT_TRUE(audit_both().at(1).faults.empty());
  journal_.reset();
  {
    const auto database = store::Database::open_as_it_is(files_, "/journal.sqlite", "the test");
    ASSERT_TRUE(database.ok());
    ASSERT_TRUE((*database)->run("UPDATE contributions SET base_version = 0 WHERE round = 2").ok());
  }
  journal_ = store::CoordinatorJournal::open(files_, "/journal.sqlite").value();
  const std::vector<AuditedRound> audits = audit_both();
  EXPECT_TRUE(audits.at(0).faults.empty());
  ASSERT_EQ(audits.at(1).faults.size(), 1u);
  EXPECT_NE(audits.at(1).faults[0].find("round 1 has counted"), std::string::npos) << audits.at(1).faults[0];
}

TEST_F(AuthorshipTest, ACommitsAuditLogIsStillThere) {
  store::AuditLog log(*journal_);
  ASSERT_TRUE(log.append({.kind = store::AuditKind::kStarted}, WallTime()).ok());
  signer_.with_audit_head([&] { return std::string(as_text(log.head()->bytes())); });
  commit({given(first_)});
  ASSERT_TRUE(log.append({.kind = store::AuditKind::kStopped}, WallTime()).ok());
  EXPECT_TRUE(audited(identity::PublicKey::of(coordinators_)).faults.empty()) << "it goes on behind it";
}

TEST_F(AuthorshipTest, AnAuditFindsThatTheAuditLogWasCut) {
  signer_.with_audit_head([] { return std::string(as_text(store::AuditHead{7, Digest{}}.bytes())); });
  commit({given(first_)});
  const AuditedRound audit = audited(identity::PublicKey::of(coordinators_));
  ASSERT_EQ(audit.faults.size(), 1u);
  EXPECT_NE(audit.faults[0].find("entry 7 of the audit log is not there"), std::string::npos) << audit.faults[0];
}

// As a site reads it.
TEST_F(AuthorshipTest, WhatTheCoordinatorSignsItsMembersVerify) {
  signer_.in_history(round::HistoryId(3));
  signer_.with_audit_head([] { return std::string("head"); });
  tree::Orders orders;
  orders.in_history(round::HistoryId(3));
  orders.by(signer_.key());
  round::CommitRecord record;
  record.run = RunId(1);
  record.round = RoundId(1);
  record.model = {RunId(1), ModelVersion(1), sha256(as_byte_span("model")), 12};
  ASSERT_TRUE(record.contributors.add(given(first_)).ok());
  record.refusals = {{second_, {Code::kDataLoss, "not finite"}}, {SiteId(60), {Code::kUnavailable, "no worker"}}};
  record.refusals.push_back({SiteId(62), {Code::kDataLoss, "old and damaged"}, RoundId(1)});
  record.late = {SiteId(61)};
  wire::Commit told{record.run, record.round, record.attempt, record.model, {}, {}, true, {}};
  told.order = signer_.commit(record, true, record.model.digest);
  told.outcomes = signer_.outcomes(record);
  EXPECT_TRUE(orders.committed(told).ok());
  const auto outcome = [&](SiteId site) { return orders.outcome_of(site, told).value().value().outcome; };
  EXPECT_EQ(outcome(first_), round::Outcome::kCounted);
  EXPECT_EQ(outcome(second_), round::Outcome::kRefused);
  EXPECT_EQ(outcome(SiteId(60)), round::Outcome::kLate);
  EXPECT_EQ(outcome(SiteId(61)), round::Outcome::kLate);
  EXPECT_EQ(orders.outcome_of(SiteId(62), told).value()->own, RoundId(1));
  EXPECT_FALSE(OrderSigner(std::nullopt, Epoch(1)).commit(record, true, record.model.digest))
      << "without a key nothing is signed";
}

}  // namespace
}  // namespace fluvial::coordinator

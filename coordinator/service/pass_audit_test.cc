#include "coordinator/service/pass_audit.h"

#include <gmock/gmock.h>

#include "coordinator/service/authorship.h"
#include "coordinator/service/round_audit.h"
#include "core/digest/sha256.h"
#include "core/store/memory_file_system.h"
#include "core/store/sqlite.h"
#include "core/wire/statements.h"

namespace fluvial::coordinator {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::uint64_t kRows = 30, kCols = 40, kRank = 2;
constexpr std::uint64_t kMeanBytes = 16 + kRank * kRows * sizeof(float);
constexpr std::uint64_t kStateBytes = 32 + kRank * kCols * sizeof(float);

Digest digest_of(const std::string& text) { return sha256(as_byte_span(text)); }

// A run of a site that signs, 1, and two that sign nothing.
class PassAuditTest : public testing::Test {
 protected:
  PassAuditTest() {
    run_.plan.name = "thin";
    run_.plan.codec = "powersgd:rank=2";
    run_.schema = round::Schema::make({{"w", round::DType::kF32, {kRows, kCols}}}).value();
    run_.initial_model = digest_of("initial");
    run_.id = journal_->create_run(run_).value();
    const Digest secret = digest_of("token");
    EXPECT_TRUE(journal_->add_token({"token", secret, Role::kSite, "site", "eu", 1000, WallTime::max(), {}}).ok());
    store::NodeRow row;
    row.role = Role::kSite;
    row.name = row.certificate_serial = "site";
    site_ = journal_->redeem_token(secret, row, WallTime(), {key_der_.span(), WallTime::max()}).value().id;
  }
  round::Contribution given(SiteId site, std::uint64_t weight, const round::MadeFrom& from) const {
    round::Contribution one{site, Epoch(5), weight, digest_of("pass " + std::to_string(from.pass)), 0, {}};
    one.incarnation = Incarnation(2);
    one.submission = 8 + from.pass;
    one.from = from;
    if (site != site_ || from.pass == 0) return one;
    const std::string body = wire::contribution_body(run_.id, RoundId(1), run_.initial_model, one);
    one.signature = identity::sign(key_, wire::kContributionKind, as_byte_span(body)).value();
    return one;
  }
  // Both unsigned sites in the first pass, one of them in the last.
  round::CommitRecord record() const {
    const round::VectorRef mean{digest_of("P"), kMeanBytes};
    round::CommitRecord record;
    record.run = run_.id;
    record.round = RoundId(1);
    record.attempt = AttemptId(1);
    record.model = {run_.id, ModelVersion(1), digest_of("model"), 4 * kRows * kCols};
    record.passes = {{{}, mean}};
    for (const SiteId site : {site_, SiteId(20), SiteId(21)}) {
      EXPECT_TRUE(record.passes[0].contributors.add(given(site, 10, {})).ok());
    }
    for (const SiteId site : {site_, SiteId(20)}) {
      EXPECT_TRUE(record.contributors.add(given(site, 10, {1, mean.digest})).ok());
    }
    record.codec_state = round::VectorRef{digest_of("Q"), kStateBytes};
    return record;
  }
  std::vector<std::string> faults_of(const round::CommitRecord& record) const {
    return PassAudit::of(run_).value().faults_of(record);
  }

  void commit() {
    round::AttemptRecord attempt{run_.id, RoundId(1), AttemptId(1), Epoch(1), {}, 30, {}};
    for (const SiteId site : {site_, SiteId(20), SiteId(21)}) attempt.participants.push_back({site, Epoch(5), 1000});
    ASSERT_TRUE(journal_->open_attempt(attempt).ok());
    store::CommitRow row;
    row.record = record();
    row.master = row.record.model.digest;
    row.keys[site_] = {key_der_.span().begin(), key_der_.span().end()};
    ASSERT_TRUE(journal_->commit(row).ok());
  }
  // By somebody who holds the journal.
  void bend(const char* sql) {
    journal_.reset();
    ASSERT_TRUE(store::Database::open_as_it_is(files_, "/journal.sqlite", "the test").value()->run(sql).ok());
    journal_ = store::CoordinatorJournal::open(files_, "/journal.sqlite").value();
  }
  std::vector<std::string> audited() {
    const auto rounds = audit_rounds(*journal_, {}, {run_.id, RoundId(1), 10});
    EXPECT_TRUE(rounds.ok() && rounds->size() == 1 && rounds->at(0).contributors_signed == 1);
    return rounds->at(0).faults;
  }

  store::MemoryFileSystem files_;
  std::unique_ptr<store::CoordinatorJournal> journal_ =
      store::CoordinatorJournal::open(files_, "/journal.sqlite").value();
  const identity::PrivateKey key_ = identity::PrivateKey::generate().value();
  const Buffer key_der_ = identity::PublicKey::of(key_).der();
  store::RunRow run_;
  SiteId site_;
};

TEST_F(PassAuditTest, FindsNothingInARoundAsItMustBe) {
  EXPECT_THAT(faults_of(record()), IsEmpty());
  commit();
  EXPECT_THAT(audited(), IsEmpty()) << "the signature is over the pass and its mean";
}

TEST_F(PassAuditTest, FindsWhoIsNotInThePassBefore) {
  commit();
  bend("DELETE FROM pass_contributions WHERE site = 20");
  EXPECT_THAT(audited(), ElementsAre("site 20: it is in pass 2, and not in pass 1"));
}

TEST_F(PassAuditTest, FindsWhoHasAnotherWeight) {
  commit();
  bend("UPDATE pass_contributions SET weight = 11 WHERE site = 20");
  EXPECT_THAT(audited(), ElementsAre("site 20: it has the weight 10 in pass 2, and 11 in pass 1"));
}

TEST_F(PassAuditTest, FindsAContributionOfAnotherMean) {
  commit();
  bend("UPDATE passes SET mean = (SELECT model FROM commits)");
  EXPECT_THAT(audited(), ElementsAre(HasSubstr("site " + std::to_string(site_.value()) + ": ")));
}

// Then nobody knows what its contributions were made from.
TEST_F(PassAuditTest, FindsThatAPassIsNotThere) {
  commit();
  bend("DELETE FROM pass_contributions");
  bend("DELETE FROM passes");
  EXPECT_THAT(audited(), ElementsAre(HasSubstr("site " + std::to_string(site_.value()) + ": "),
                                     "passes in the commit: 1, by its codec: 2"));
  run_.plan.codec = "fp32";
  EXPECT_THAT(faults_of(record()), ElementsAre("passes in the commit: 2, by its codec: 1"));
}

TEST_F(PassAuditTest, FindsVectorsOfAnotherLength) {
  round::CommitRecord bent = record();
  bent.passes[0].mean.bytes -= 4;
  bent.codec_state.reset();
  EXPECT_THAT(faults_of(bent), ElementsAre(AllOf(HasSubstr("the mean of pass 1 has "), HasSubstr("expected 256")),
                                           "the codec's state has 0 bytes, expected 352"));
}

// One pass, and from the last round of the warm-up on a momentum: a bit a value, in blocks of 256.
TEST_F(PassAuditTest, FindsAMomentumWhereNoneIsDueAndNoneWhereOneIs) {
  run_.plan.codec = "onebit_adam:freeze=2";
  round::CommitRecord commit;
  commit.run = run_.id;
  const round::VectorRef momentum{digest_of("M"), 8 + 5 * 4 + 152};  // 150 bytes of bits, to a multiple of 4
  for (const std::uint64_t round : {1U, 2U, 3U}) {
    commit.round = RoundId(round);
    const bool is_due = round >= 2;
    commit.codec_state = is_due ? std::optional(momentum) : std::nullopt;
    EXPECT_THAT(faults_of(commit), IsEmpty()) << round;
    commit.codec_state = is_due ? std::nullopt : std::optional(momentum);
    EXPECT_THAT(faults_of(commit), ElementsAre(HasSubstr("the codec's state has "))) << round;
  }
}

}  // namespace
}  // namespace fluvial::coordinator

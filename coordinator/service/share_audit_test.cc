#include "coordinator/service/share_audit.h"

#include <gtest/gtest.h>

#include "core/digest/sha256.h"
#include "core/round/lateness.h"
#include "core/store/memory_file_system.h"

namespace fluvial::coordinator {
namespace {

constexpr std::uint64_t kWindows = 300;  // more than decide a share

// Site 1 is in each window, site 2 in each third, site 3 in the first alone.
class ShareAuditTest : public testing::Test {
 protected:
  ShareAuditTest() {
    EXPECT_TRUE(files_.make_folder("/c").ok());
    journal_ = store::CoordinatorJournal::open(files_, "/c/journal.db").value();
  }
  void begin(const char* fairness) {
    round::set_mode("async", &run_.plan);
    run_.plan.name = "fair";
    run_.plan.rounds = 1000;
    run_.plan.async_fairness = fairness;
    run_.schema = round::Schema::make({{"w", round::DType::kF32, {3}}}).value();
    run_.id = journal_->create_run(run_).value();
    run_ = journal_->run(run_.id).value();
  }
  static std::vector<std::uint32_t> sites_in(std::uint64_t window) {
    if (window == 1) return {1, 2, 3};
    return window % 3 == 0 ? std::vector<std::uint32_t>{1, 2} : std::vector<std::uint32_t>{1};
  }
  round::CommitRecord record_of(std::uint64_t window, const std::vector<std::uint32_t>& sites) {
    round::CommitRecord record;
    record.run = run_.id;
    record.round = RoundId(window);
    record.attempt = AttemptId(1);
    record.late_is_next = true;
    for (const std::uint32_t id : sites) {
      round::Contribution one{SiteId(id), Epoch(1), 10, sha256(as_byte_span(std::to_string(window))), 10, {}};
      one.base = one.admitted = ModelVersion(window - 1);
      one.share = round::is_fair(run_.plan) ? rates_.share(one.site) : round::kWholeFactor;
      EXPECT_TRUE(record.contributors.add(one).ok());
    }
    return record;
  }
  void commit(std::uint64_t window) {
    round::AttemptRecord attempt{run_.id, RoundId(window), AttemptId(1), Epoch(1), {}, 30, {}};
    for (std::uint32_t id = 1; id <= 3; ++id) attempt.participants.push_back({SiteId(id), Epoch(1), 1000});
    ASSERT_TRUE(journal_->open_attempt(attempt).ok());
    store::CommitRow row;
    row.record = record_of(window, sites_in(window));
    row.record.model.digest = row.master = sha256(as_byte_span("model"));
    ASSERT_TRUE(journal_->commit(row).ok());
    rates_.committed(ModelVersion(window), row.record.contributors, factors_);
  }
  void commit_all() {
    for (std::uint64_t window = 1; window <= kWindows; ++window) commit(window);
  }
  std::size_t faults_from(std::uint64_t from) {
    ShareAudit audit = ShareAudit::before(*journal_, run_, RoundId(from)).value();
    std::size_t faults = 0;
    const std::vector<store::CommitRow> rows = journal_->commits(run_.id, RoundId(from), kWindows).value();
    for (const store::CommitRow& row : rows) {
      faults += audit.faults_of(row.record).size();
    }
    return faults;
  }

  store::MemoryFileSystem files_;
  std::unique_ptr<store::CoordinatorJournal> journal_;
  store::RunRow run_;
  round::Rates rates_;
  std::vector<std::uint32_t> factors_ = round::staleness_factors(10, 0.5);
};

TEST_F(ShareAuditTest, FindsNothingWhereSharesAreByRate) {
  begin("rate");
  commit_all();
  for (const std::uint64_t from : {std::uint64_t{1}, std::uint64_t{100}, kWindows})
    EXPECT_EQ(faults_from(from), 0u) << from;
}

TEST_F(ShareAuditTest, FindsAnotherShare) {
  begin("rate");
  commit_all();
  for (const std::uint64_t from : {std::uint64_t{1}, kWindows}) {
    ShareAudit audit = ShareAudit::before(*journal_, run_, RoundId(from)).value();
    round::CommitRecord bent = record_of(from, {});
    round::Contribution one = *record_of(from, {2}).contributors.find(SiteId(2));
    one.share = *rates_.share(SiteId(2), one.admitted) + 1;
    ASSERT_TRUE(bent.contributors.add(one).ok());
    const std::vector<std::string> faults = audit.faults_of(bent);
    ASSERT_EQ(faults.size(), 1u) << from;
    EXPECT_NE(faults[0].find("site 2"), std::string::npos) << faults[0];
  }
}

// What is pruned may have decided it.
TEST_F(ShareAuditTest, SaysNothingOfWhatItCannotKnow) {
  begin("rate");
  commit_all();
  while (journal_->prune_rounds({2, {}}).value() > 0) {
  }
  ASSERT_EQ(journal_->pruned(run_.id).value(), RoundId(kWindows - round::kRateHistory));
  EXPECT_EQ(faults_from(kWindows - round::kRateHistory + 1), 0u);
  EXPECT_EQ(faults_from(kWindows), 0u);
}

TEST_F(ShareAuditTest, WithoutTheKeyEachCountsWhole) {
  begin("none");
  commit(1);
  EXPECT_EQ(faults_from(1), 0u);
  ShareAudit audit = ShareAudit::before(*journal_, run_, RoundId(1)).value();
  round::CommitRecord bent;
  round::Contribution one = *record_of(1, {1}).contributors.find(SiteId(1));
  one.share = 32;
  ASSERT_TRUE(bent.contributors.add(one).ok());
  EXPECT_EQ(audit.faults_of(bent).size(), 1u);
}

}  // namespace
}  // namespace fluvial::coordinator

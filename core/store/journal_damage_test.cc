// A journal whose rows a disk has damaged, or somebody else wrote: it says so, or goes on without what is missing.
#include <gmock/gmock.h>

#include <limits>

#include "core/store/journal_test_support.h"
#include "core/store/sqlite.h"

namespace fluvial::store {
namespace {

class JournalDamage : public JournalOfMembers {
 protected:
  void write(const char* sql, SqlValue value) {
    journal_.reset();
    const auto database = Database::open_as_it_is(files_, "/c/journal.db", "the test");
    ASSERT_TRUE(database.ok());
    ASSERT_TRUE((*database)->run(sql, {value}).ok());
  }
};

TEST_F(JournalDamage, ATokenThatWasUsedNobodyKnowsWhen) {
  add_token("t1", "hospital-a");
  write("UPDATE tokens SET uses = ?, used_at = NULL", 1);
  crash_and_reopen();
  NodeRow node;
  node.name = "hospital-a";
  const auto refused = journal_->redeem_token(digest_of("t1"), node, at(1));
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, testing::HasSubstr("used at an unknown time"));
  EXPECT_FALSE(journal_->revoke_token("t1", at(1)).ok());
}

TEST_F(JournalDamage, AMomentThatNoCalendarHas) {
  for (const std::int64_t never :
       {std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()}) {
    add_token(never > 0 ? "t1" : "t2", "hospital-a");
    write("UPDATE tokens SET revoked_at = ?", never);
    crash_and_reopen();
    NodeRow node;
    node.name = "hospital-a";
    const auto refused = journal_->redeem_token(digest_of(never > 0 ? "t1" : "t2"), node, at(1));
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().message, testing::HasSubstr(never > 0 ? "at 2200-01-01" : "at 1970-01-01"));
  }
}

TEST_F(JournalDamage, ARunOfAStatusThatNoRunHas) {
  RunRow row;
  row.plan.name = "digits";
  row.schema = round::Schema::make({{"w", round::DType::kF32, {3}}}).value();
  const RunId run = journal_->create_run(row).value();
  write("UPDATE runs SET status = ?", 9);
  crash_and_reopen();
  EXPECT_EQ(journal_->runs().error().code, Code::kDataLoss);
  EXPECT_EQ(journal_->set_run_status(run, RunStatus::kPaused, "").error().code, Code::kDataLoss);
}

}  // namespace
}  // namespace fluvial::store

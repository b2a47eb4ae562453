// Which authorities there are, in what state, and which member trusts which list of them.
#include "core/store/authority_book.h"

#include "core/store/journal_copy.h"
#include "core/store/journal_test_support.h"

namespace fluvial::store {
namespace {

class AuthorityBookTest : public JournalOfMembers {
 protected:
  AuthorityBook book() { return AuthorityBook(*journal_); }
  AuthorityRow row(const std::string& key, AuthorityState state, std::int64_t since = 1000) {
    return {digest_of(key), "chain of " + key, state, at(since)};
  }
};

TEST_F(AuthorityBookTest, AStepIsThereAsAWholeAfterACrashAndTheFirstOneStaysFirst) {
  EXPECT_TRUE(book().all().value().empty());
  EXPECT_EQ(book().trust().value(), 0U);
  ASSERT_TRUE(book().put({row("old", AuthorityState::kIssuing)}, {}).ok());
  ASSERT_TRUE(book().put({row("next", AuthorityState::kNext, 1100)}, at(1100)).ok());
  crash_and_reopen();
  EXPECT_EQ(book().all().value(),
            (std::vector{row("old", AuthorityState::kIssuing), row("next", AuthorityState::kNext, 1100)}));

  const std::vector<AuthorityRow> step = {row("next", AuthorityState::kIssuing, 1200),
                                          row("old", AuthorityState::kOld, 1200)};
  ASSERT_TRUE(book().put(step, {}).ok());
  crash_and_reopen();
  EXPECT_EQ(book().all().value(), (std::vector{step[1], step[0]}));
}

TEST_F(AuthorityBookTest, TheNumberOfTheListOnlyGrowsAndIsNoneThatALostHistoryGave) {
  ASSERT_TRUE(book().put({row("old", AuthorityState::kIssuing)}, {}).ok());
  EXPECT_EQ(book().trust().value(), 0U);
  ASSERT_TRUE(book().put({row("a", AuthorityState::kNext)}, at(1100)).ok());
  const std::uint64_t first = book().trust().value();
  EXPECT_GT(first, 0U);
  ASSERT_TRUE(book().put({row("a", AuthorityState::kGone)}, at(1050)).ok());  // the clock was set back
  EXPECT_EQ(book().trust().value(), first + 1);
  // What a backup from before the first step would count later is another number, because it is later.
  ASSERT_TRUE(book().put({row("b", AuthorityState::kNext)}, at(5000)).ok());
  EXPECT_GT(book().trust().value(), first + 1000);
}

TEST_F(AuthorityBookTest, WhichListAMemberCameWithStands) {
  add_token("t", "a");
  const NodeRow node{NodeId(), Role::kSite, "a", "eu", 1000, "s1", at(1000), "", {}, {}, ""};
  const NodeId a = journal_->redeem_token(digest_of("t"), node, at(1000), {as_byte_span("key"), at(9000)})->id;
  EXPECT_EQ(book().shown().value(), (std::map<NodeId, std::uint64_t>{{a, 0}}));
  ASSERT_TRUE(book().shown(a, 17).ok());
  ASSERT_TRUE(book().shown(NodeId(99), 17).ok());  // nobody
  crash_and_reopen();
  EXPECT_EQ(book().shown().value(), (std::map<NodeId, std::uint64_t>{{a, 17}}));
}

}  // namespace
}  // namespace fluvial::store

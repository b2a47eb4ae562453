#include "core/transfer/round_book.h"

#include "core/transfer/test_support.h"

namespace fluvial::transfer {
namespace {

class RoundBookTest : public TransferTest {
 protected:
  RoundBookTest() { book_.open(RunId(1), RoundId(1)); }
  void keep(const UpdateHead& head, std::size_t chunks) {
    Incoming incoming = begin(head);
    feed(incoming, test_values(1), 0, chunks);
    book_.keep(head.site, std::move(incoming));
  }
  static PartialHead partial_of(const UpdateHead& of, const std::vector<float>& values) {
    PartialHead head;
    head.child = NodeId(2);
    head.run = of.run;
    head.round = of.round;
    const Status added = head.what.contributors.add(
        {of.site, of.lease, of.weight, test_sha256(values), 0, {}, of.incarnation, of.submission});
    EXPECT_TRUE(added.ok());
    return head;
  }
  std::optional<Code> conflict(const UpdateHead& head, const std::vector<float>& values) const {
    const std::vector<round::Refusal> conflicts = book_.conflicts(partial_of(head, values));
    return conflicts.empty() ? std::nullopt : std::optional(conflicts[0].error.code);
  }
  RoundBook book_;
};

TEST_F(RoundBookTest, ASubmissionHasOneContent) {
  book_.complete(arrival(test_head(7), test_values(1)));
  EXPECT_FALSE(conflict(test_head(7), test_values(1))) << "the same again is harmless";
  EXPECT_EQ(conflict(test_head(7), test_values(2)), Code::kConflict);
  EXPECT_FALSE(conflict(test_head(8), test_values(2))) << "another site's";
  EXPECT_TRUE(book_.admit(test_head(7)).ok());
}

TEST_F(RoundBookTest, ANewerSubmissionOrIncarnationReplacesAndAnOlderIsStale) {
  book_.complete(arrival(test_head(7, 5, 2), test_values(1)));
  EXPECT_EQ(book_.admit(test_head(7, 4, 2)).error().code, Code::kStale);
  EXPECT_EQ(book_.admit(test_head(7, 6, 1)).error().code, Code::kStale);
  EXPECT_FALSE(conflict(test_head(7, 6, 2), test_values(2)));
  book_.complete(arrival(test_head(7, 6, 2), test_values(2)));
  EXPECT_FALSE(conflict(test_head(7, 1, 3), test_values(3))) << "a restarted site";
  book_.complete(arrival(test_head(7, 1, 3), test_values(3)));
  EXPECT_EQ(book_.admit(test_head(7, 6, 2)).error().code, Code::kStale);
}

TEST_F(RoundBookTest, AContradictionIsFoundWhicheverWayItComes) {
  book_.complete(arrival(test_head(7), test_values(1)));
  EXPECT_TRUE(book_.conflicts(partial_of(test_head(7), test_values(1))).empty());
  const std::vector<round::Refusal> conflicts = book_.conflicts(partial_of(test_head(7), test_values(2)));
  ASSERT_EQ(conflicts.size(), 1u);
  EXPECT_EQ(conflicts[0].site, SiteId(7));
  EXPECT_EQ(conflicts[0].error.code, Code::kConflict);

  StagedArrival partial;  // and the other way round: first through a child
  partial.run = RunId(1);
  partial.round = RoundId(1);
  partial.what = partial_of(test_head(9), test_values(1)).what;
  book_.complete(partial);
  EXPECT_EQ(conflict(test_head(9), test_values(2)), Code::kConflict);
}

TEST_F(RoundBookTest, AContradictionIsShownByBothContents) {
  book_.complete(arrival(test_head(7), test_values(1)));
  const std::vector<round::Refusal> conflicts = book_.conflicts(partial_of(test_head(7), test_values(2)));
  ASSERT_EQ(conflicts.size(), 1u);
  ASSERT_EQ(conflicts[0].proof.size(), 2u);
  EXPECT_EQ(conflicts[0].proof[0].digest, test_sha256(test_values(1)));
  EXPECT_EQ(conflicts[0].proof[1].digest, test_sha256(test_values(2)));
}

TEST_F(RoundBookTest, AnotherRoundKnowsNothingOfIt) {
  book_.complete(arrival(test_head(7, 5), test_values(1)));
  book_.open(RunId(1), RoundId(1));
  EXPECT_TRUE(conflict(test_head(7, 5), test_values(2))) << "opened again, it is the same";
  book_.open(RunId(1), RoundId(2));
  EXPECT_TRUE(book_.admit(test_head(7, 4)).ok());
  EXPECT_FALSE(conflict(test_head(7, 5), test_values(2))) << "not of the open round";
}

TEST_F(RoundBookTest, WhatWasCutOffIsOfferedAndTakenOnce) {
  keep(test_head(7, 9, 3), 2);
  EXPECT_EQ(book_.received(NodeId(7)), (wire::Received{Incarnation(3), 9, 2}));
  EXPECT_FALSE(book_.received(NodeId(8)));
  UpdateHead head = test_head(7, 9, 3);
  head.first_chunk = 2;
  EXPECT_TRUE(book_.take(head));
  EXPECT_FALSE(book_.take(head));
  EXPECT_FALSE(book_.received(NodeId(7)));
  EXPECT_EQ(budget_.bytes_used(), 0u);
}

// Windows: a transfer goes on in the one after it was cut off, and no later.
TEST_F(RoundBookTest, WhatWasCutOffGoesOverIntoTheNextWindow) {
  keep(test_head(7), 1);
  book_.go_over(RunId(1), RoundId(2), 1);
  EXPECT_TRUE(book_.received(NodeId(7)).has_value());
  book_.go_over(RunId(1), RoundId(3), 1);
  EXPECT_FALSE(book_.received(NodeId(7)).has_value()) << "it would hold its bytes for ever";
  keep(test_head(8), 1);
  EXPECT_TRUE(book_.received(NodeId(8)).has_value()) << "announced for a window before";
  book_.go_over(RunId(2), RoundId(3), 1);
  EXPECT_FALSE(book_.received(NodeId(8)).has_value()) << "another run";
}

TEST_F(RoundBookTest, AWindowKnowsNoSubmissionOfTheOneBefore) {
  book_.complete(arrival(test_head(7, 5, 2), test_values(1)));
  book_.go_over(RunId(1), RoundId(2), 1);
  EXPECT_TRUE(book_.admit(test_head(7, 4, 1)).ok()) << "a folder that is an older copy is heard again";
}

TEST_F(RoundBookTest, NothingLeaksFromTheBudget) {
  const std::uint64_t two_chunks = 2 * kTestChunkValues * sizeof(float);
  keep(test_head(7, 9), 2);
  keep(test_head(7, 10), 2);  // one for each child
  EXPECT_EQ(budget_.bytes_used(), two_chunks);
  EXPECT_FALSE(book_.take(test_head(7, 10))) << "from the start: what was kept is let go";
  EXPECT_EQ(budget_.bytes_used(), 0u);

  keep(test_head(7), 0);
  EXPECT_FALSE(book_.received(NodeId(7))) << "nothing to go on from";
  UpdateHead other_round = test_head(7);
  other_round.round = RoundId(2);
  keep(other_round, 2);
  EXPECT_EQ(budget_.bytes_used(), 0u);

  keep(test_head(7), 2);
  keep(test_head(8), 1);
  EXPECT_GT(budget_.bytes_used(), two_chunks);
  book_.open(RunId(1), RoundId(2));
  EXPECT_EQ(budget_.bytes_used(), 0u);
  book_.close();
  keep(test_head(7), 2);
  EXPECT_EQ(budget_.bytes_used(), 0u) << "no round is open";
}

// The first pass of the next attempt brings what a site encoded before the second pass of this one.
TEST_F(RoundBookTest, EachPassHasItsOwnSubmissions) {
  const auto in = [](std::uint32_t pass, std::uint64_t submission) {
    UpdateHead head = test_head(7, submission);
    if (pass > 0) head.from = {pass, {std::byte{1}}};
    return head;
  };
  book_.complete(arrival(in(0, 5), test_values(1)));
  book_.open(RunId(1), RoundId(1), 1);
  book_.complete(arrival(in(1, 6), test_values(2)));
  EXPECT_EQ(book_.admit(in(1, 5)).error().code, Code::kStale);
  book_.complete(arrival(in(0, 9), test_values(1)));  // late, of the pass before
  EXPECT_TRUE(book_.admit(in(1, 6)).ok());
  book_.open(RunId(1), RoundId(1), 0);
  EXPECT_TRUE(book_.admit(in(0, 5)).ok());
  book_.complete(arrival(in(0, 5), test_values(1)));
  EXPECT_EQ(conflict(in(0, 5), test_values(3)), Code::kConflict);
}

TEST_F(RoundBookTest, ATransferThatWasCutOffGoesOnInItsPass) {
  UpdateHead head = test_head(7);
  keep(head, 2);
  book_.open(RunId(1), RoundId(1), 1);
  EXPECT_FALSE(book_.received(SiteId(7)).has_value());
  EXPECT_EQ(budget_.bytes_used(), 0u);
}

}  // namespace
}  // namespace fluvial::transfer

// Groups of ranks, and results that are announced in parts, at the desk.
#include "edge/service/test_desk.h"
#include "edge/service/trained_parts.h"

namespace fluvial::edge {
namespace {

using local::WorkerId;

class GroupTest : public DeskTest {
 protected:
  GroupTest() : DeskTest({.workers = 1}) {}
};

TEST_F(GroupTest, AGroupIsOneWorkerOnceAllItsRanksAreThere) {
  train();
  attach_rank(1, 1, 2);
  EXPECT_TRUE(given_.empty());
  attach_rank(2, 0, 2);
  ASSERT_EQ(given_.size(), 2u);
  EXPECT_EQ(given_[0].first, WorkerId(2)) << "by rank";
  EXPECT_NE(given_[0].second.id, given_[1].second.id);
  EXPECT_EQ(given_[0].second.model, given_[1].second.model);
  answer(1, 10, 2.0, {8, 8});
  answer(0, 10, 1.0, {0, 8});
  const Trained trained = done().value();
  ASSERT_EQ(trained.parts.size(), 1u);
  EXPECT_EQ(trained.weight, 10u) << "once, not once a rank";
  EXPECT_DOUBLE_EQ(trained.metrics.at("loss"), 1.5);
  ASSERT_EQ(trained.parts[0].shards.size(), 2u);
  EXPECT_EQ(trained.workers(), (std::vector<std::string>{"rank-0", "rank-1"}));
  const std::vector<PartView> views = views_of(trained.parts);
  ASSERT_EQ(views[0].shards.size(), 2u);
  EXPECT_TRUE(views[0].shards[1].ranges.covers(round::ByteRange{8, 8}));
}

TEST_F(GroupTest, RangesThatDoNotTileTheModelFailTheTaskWithTheFirstByte) {
  attach_rank(1, 0, 2);
  attach_rank(2, 1, 2);
  const auto refusal = [this](round::ByteRange first, round::ByteRange second) {
    const std::size_t given = given_.size();
    train();
    answer(given, 10, 1.0, first);
    answer(given + 1, 10, 1.0, second);
    return done().error();
  };
  EXPECT_EQ(refusal({0, 8}, {4, 12}), (Error{Code::kInvalidArgument, "byte 4 of the model is given twice"}));
  EXPECT_EQ(refusal({0, 4}, {8, 8}), (Error{Code::kInvalidArgument, "byte 4 of the model is given by none"}));
  EXPECT_EQ(refusal({0, 8}, {8, 4}), (Error{Code::kInvalidArgument, "byte 12 of the model is given by none"}));
  EXPECT_EQ(refusal({0, 16}, {0, 16}), (Error{Code::kInvalidArgument, "byte 0 of the model is given twice"}));
  train();
  answer(8, 10, 1.0, {0, 16});
  answer(9, 10, 1.0, {0, 0});
  EXPECT_TRUE(done().ok()) << "a rank may answer for nothing";
}

TEST_F(GroupTest, RanksThatDisagreeAboutTheWeightFailTheTask) {
  attach_rank(1, 0, 2);
  attach_rank(2, 1, 2);
  train();
  answer(0, 10, 1.0, {0, 8});
  answer(1, 11, 1.0, {8, 8});
  EXPECT_EQ(
      done().error().message,
      "rank-0 brought a model of weight 10 and rank-1 a model of weight 11: the ranks of a group bring one result");
}

TEST_F(GroupTest, AGroupOfTooManyRangesIsRefusedBeforeTheyAreCompared) {
  UnitAnswers answers(2);
  for (std::uint64_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(answers[0].result.ranges.add({8 * i, 4}).ok());
    ASSERT_TRUE(answers[1].result.ranges.add({8 * i + 4, 4}).ok());
  }
  EXPECT_TRUE(check_unit(answers, 24, 6).ok());
  EXPECT_EQ(check_unit(answers, 24, 5).error().message, "a group's ranks bring 6 ranges; at most 5");
}

TEST_F(GroupTest, ARankThatLeavesTakesTheTaskWithIt) {
  attach_rank(1, 0, 2);
  attach_rank(2, 1, 2);
  train();
  die(1);
  attach_rank(3, 1, 2);
  EXPECT_EQ(given_.size(), 2u) << "rank 0 is still at its part";
  answer(0, 10, 1.0, {0, 8});
  ASSERT_EQ(given_.size(), 4u) << "both ranks begin anew";
  die(2);
  attach(4, "alone");
  ASSERT_EQ(given_.size(), 5u) << "another worker takes it over";
  answer(4, 5, 1.0);
  EXPECT_EQ(done()->weight, 5u) << "nothing of the group's is in it";
}

TEST_F(GroupTest, ARankThatFailsFailsTheTask) {
  attach_rank(1, 0, 2);
  attach_rank(2, 1, 2);
  train();
  fail(1, Code::kInternal);
  EXPECT_EQ(done().error().message, "no memory");
  answer(0, 10, 1.0, {0, 8});
  train(3);
  EXPECT_EQ(given_.size(), 4u) << "and the next round has both again";
}

// ---- early ranges ----------------------------------------------------------------------------------------------

TEST_F(DeskTest, WhatAllHaveAnnouncedMayBeReduced) {
  attach(1, "trainer-0");
  attach_rank(2, 0, 2);
  attach_rank(3, 1, 2);
  train();
  ASSERT_EQ(given_.size(), 3u);  // fsdp's ranks, then trainer-0
  ready(0, 10, {0, 4});
  ready(1, 10, {12, 4});
  EXPECT_TRUE(early_.empty());
  ready(2, 30, {0, 8});
  ASSERT_EQ(early_.size(), 1u);
  EXPECT_EQ(early_[0].second.ranges(), (std::vector<round::ByteRange>{{0, 4}}));
  ASSERT_EQ(early_[0].first.size(), 2u);
  EXPECT_EQ(early_[0].first[0].weight, 10u);
  EXPECT_EQ(early_[0].first[1].weight, 30u);
  answer(2, 30, 1.0);
  EXPECT_EQ(early_.back().second.ranges(), (std::vector<round::ByteRange>{{0, 4}, {12, 4}}));
  answer(0, 10, 1.0, {0, 8});
  answer(1, 10, 1.0, {8, 8});
  EXPECT_TRUE(same_results(early_.back().first, done()->parts));
}

TEST_F(DeskTest, WhatWasReducedWithAWorkerThatDiedIsNotTheRestsResult) {
  attach(1, "trainer-0");
  attach(2, "trainer-1");
  attach(3, "trainer-2");
  train();
  ready(0, 10, {0, 8});
  ready(1, 10, {0, 8});
  ASSERT_EQ(early_.size(), 1u);
  die(0);
  ASSERT_EQ(given_.size(), 3u);
  EXPECT_EQ(given_[2].first, WorkerId(3));
  ready(2, 10, {0, 4});
  ASSERT_EQ(early_.size(), 2u);
  EXPECT_FALSE(same_results(early_[0].first, early_[1].first));
  answer(1, 10, 1.0);
  answer(2, 10, 1.0);
  EXPECT_FALSE(same_results(early_[0].first, done()->parts));
}

}  // namespace
}  // namespace fluvial::edge

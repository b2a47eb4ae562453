#include "core/transfer/cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fluvial::transfer {
namespace {

using testing::ElementsAre;

// Sites 11 and 12 are below node 1, site 21 is a child itself, site 31 is away.
NodeId via(SiteId site) {
  if (site == SiteId(11) || site == SiteId(12)) return NodeId(1);
  return site == SiteId(21) ? site : NodeId(0);
}

std::vector<round::Participant> everybody() {
  std::vector<round::Participant> all;
  for (const std::uint32_t site : {11u, 12u, 21u, 31u}) all.push_back({SiteId(site), Epoch(site), 5});
  return all;
}

NodeId way(const round::Participant& participant) { return via(participant.site); }

TEST(Cut, AnOpeningHasTheNumbersOfItsRound) {
  round::Plan plan;
  plan.rounds = 11;
  plan.worker.values = {{"optimizer", "sgd"}, {"batch_size", 32.0}};
  plan.worker.schedules = {{"learning_rate", {.start = 1.0, .end = 0.5}}};
  const round::Schema schema = round::Schema::make({{"w", round::DType::kF32, {4}}}).value();
  const auto config = [&](std::uint64_t number) {
    round::AttemptRecord attempt;
    attempt.round = RoundId(number);
    const wire::Opening opening = opening_of(attempt, plan, schema);
    EXPECT_TRUE(opening.plan.worker.schedules.empty());
    return opening.plan.worker.values;
  };
  using Config = round::WorkerConfig;
  EXPECT_EQ(config(1), (Config{{"optimizer", "sgd"}, {"batch_size", 32.0}, {"learning_rate", 1.0}}));
  EXPECT_EQ(config(3), (Config{{"optimizer", "sgd"}, {"batch_size", 32.0}, {"learning_rate", 0.9}}));
  EXPECT_EQ(config(11), (Config{{"optimizer", "sgd"}, {"batch_size", 32.0}, {"learning_rate", 0.5}}));
}

TEST(Cut, AnOpeningNamesToAChildThoseBelowIt) {
  round::Told told;
  round::Gather gather(everybody());
  gather.mark_above({SiteId(12), SiteId(21)});
  wire::Opening whole;
  whole.run = RunId(4);
  whole.participants = {everybody().back()};  // the gather's count
  whole.received = wire::Received{Incarnation(1), 1, 1};
  const auto openings = cut_openings(whole, gather, told, {NodeId(1), NodeId(2), SiteId(21)}, way);
  EXPECT_EQ(openings.size(), 2u) << "nobody below node 2 takes part";
  const wire::Opening* region = &openings.at(NodeId(1));
  EXPECT_EQ(region->run, RunId(4));
  EXPECT_THAT(region->participants, ElementsAre(everybody()[0], everybody()[1]));
  EXPECT_THAT(region->counted, ElementsAre(SiteId(12)));
  EXPECT_FALSE(region->received) << "what the node's own parent has";
  EXPECT_THAT(openings.at(NodeId(21)).counted, ElementsAre(SiteId(21)));
}

TEST(Cut, ACommitNamesToAChildThoseBelowIt) {
  wire::Commit whole;
  whole.round = RoundId(3);
  whole.last = true;
  for (const std::uint32_t site : {11u, 21u}) {
    ASSERT_TRUE(whole.contributors.add({SiteId(site), Epoch(1), 5, {}, 77, {{"loss", 1.0}}}).ok());
  }
  whole.refusals = {{SiteId(12), Error{Code::kDataLoss, "why"}}};
  whole.late = {SiteId(31)};
  const auto commits = cut_commits(whole, {NodeId(1), NodeId(2)}, via);
  const wire::Commit& region = commits.at(NodeId(1));
  EXPECT_EQ(region.round, RoundId(3));
  EXPECT_TRUE(region.last);
  ASSERT_EQ(region.contributors.size(), 1u);
  EXPECT_EQ(region.contributors.find(SiteId(11))->probe, 0) << "that is between the node and its parent";
  EXPECT_EQ(region.refusals.size(), 1u);
  EXPECT_TRUE(region.late.empty());
  EXPECT_EQ(commits.at(NodeId(2)).contributors.size(), 0u);
}

TEST(Cut, ALateSiteIsNamedToTheChildAboveIt) {
  wire::Commit whole;
  whole.late = {SiteId(12), SiteId(21), SiteId(31)};
  const auto commits = cut_commits(whole, {NodeId(1), NodeId(2), SiteId(21)}, via);
  EXPECT_THAT(commits.at(NodeId(1)).late, ElementsAre(SiteId(12)));
  EXPECT_THAT(commits.at(SiteId(21)).late, ElementsAre(SiteId(21)));
  EXPECT_TRUE(commits.at(NodeId(2)).late.empty());
}

}  // namespace
}  // namespace fluvial::transfer

#include "core/round/pace.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <optional>

namespace fluvial::round {
namespace {

using namespace std::chrono_literals;

// What each site took in a round; without a time: late.
using Took = std::map<std::uint32_t, std::optional<Duration>>;

std::vector<Participant> participants_of(const Took& took) {
  std::vector<Participant> all;
  for (const auto& [site, time] : took) all.push_back({SiteId(site), Epoch(1), 100});
  return all;
}

void close(Pace& pace, const Took& took, Duration open_for) {
  ContributorSet in;
  for (const auto& [site, time] : took) {
    if (!time) continue;
    Contribution one{.site = SiteId(site), .lease = Epoch(1), .weight = 1};
    one.times = {*time / 2, *time / 4, *time - *time / 2 - *time / 4};
    EXPECT_TRUE(in.add(one).ok());
  }
  pace.closed(participants_of(took), in, {}, open_for);
}

Plan plan(std::uint64_t quorum = 1) {
  Plan plan;
  plan.name = "test";
  plan.quorum = quorum;
  plan.soft_deadline = 30s;
  plan.soft_deadline_min = 2s;
  return plan;
}

TEST(TimeWindow, QuantilesAreExactAndForget) {
  TimeWindow window;
  EXPECT_EQ(window.quantile(0.5), 0s);
  for (int i = 1; i <= 10; ++i) window.add(std::chrono::seconds(i));
  EXPECT_EQ(window.quantile(0.5), 5s);
  EXPECT_EQ(window.quantile(0.95), 10s);
  for (std::size_t i = 0; i < TimeWindow::kLength; ++i) window.add(1s);
  EXPECT_EQ(window.size(), TimeWindow::kLength);
  EXPECT_EQ(window.quantile(0.95), 1s);
}

TEST(Pace, OneStallMakesNoStraggler) {
  Pace pace;
  for (int round = 0; round < 5; ++round) close(pace, {{1, 4s}, {2, 4s}, {3, round == 2 ? 20s : 4s}}, 20s);
  EXPECT_FALSE(pace.find(SiteId(3))->straggler);
  EXPECT_EQ(pace.sample_weight(SiteId(3)), 1);
  EXPECT_EQ(pace.find(SiteId(3))->total.quantile(0.5), 4s);
  EXPECT_EQ(pace.find(SiteId(3))->train.quantile(0.5), 2s);
}

TEST(Pace, WhoIsSlowOrLateTwiceIsAStragglerUntilThreeOfFiveAreGood) {
  Pace pace;
  for (int round = 0; round < 2; ++round) close(pace, {{1, 4s}, {2, 4s}, {3, 12s}, {4, {}}}, 30s);
  EXPECT_DOUBLE_EQ(pace.sample_weight(SiteId(3)), 1.0 / 3);
  EXPECT_DOUBLE_EQ(pace.sample_weight(SiteId(4)), 4.0 / 30);
  EXPECT_EQ(pace.find(SiteId(4))->late, 2u);
  close(pace, {{3, 4s}, {4, 4s}, {1, 4s}}, 5s);
  EXPECT_TRUE(pace.find(SiteId(3))->straggler);
  close(pace, {{3, 4s}, {4, 4s}, {1, 4s}}, 5s);
  close(pace, {{3, 4s}, {4, 4s}, {1, 4s}}, 5s);
  EXPECT_FALSE(pace.find(SiteId(3))->straggler);
  EXPECT_EQ(pace.sample_weight(SiteId(4)), 1);
}

TEST(Pace, AWeightHasAFloor) {
  Pace pace;
  for (int round = 0; round < 3; ++round) close(pace, {{1, 1s}, {2, 1s}, {3, 3'000s}}, 3'000s);
  EXPECT_DOUBLE_EQ(pace.sample_weight(SiteId(3)), kSampleWeightMin);
}

TEST(Pace, SmallDifferencesAndRefusalsMakeNobodySlow) {
  Pace pace;
  for (int round = 0; round < 5; ++round) close(pace, {{1, 2ms}, {2, 2ms}, {3, 90ms}}, 90ms);
  EXPECT_FALSE(pace.find(SiteId(3))->straggler) << "45 times the median, and nobody waits for it";
  ContributorSet in;
  EXPECT_TRUE(in.add({.site = SiteId(1), .lease = Epoch(1), .weight = 1, .times = {1s, {}, {}}}).ok());
  pace.closed(participants_of({{1, {}}, {7, {}}}), in, {{SiteId(7), {Code::kInvalidArgument, "NaN"}}}, 30s);
  EXPECT_EQ(pace.find(SiteId(7)), nullptr);
}

TEST(Pace, UnknownTimesTeachNothing) {
  Pace pace;
  ContributorSet in;
  EXPECT_TRUE(in.add({.site = SiteId(1), .lease = Epoch(1), .weight = 1}).ok());
  pace.closed(participants_of({{1, {}}, {2, {}}}), in, {}, 30s);
  EXPECT_TRUE(pace.sites().empty());
}

TEST(Pace, InWindowsWhoIsCountedSeldomIsAStraggler) {
  Pace pace;
  const auto window = [&pace](std::initializer_list<std::uint32_t> sites, Duration at) {
    ContributorSet in;
    for (const std::uint32_t site : sites) {
      EXPECT_TRUE(in.add(Contribution{.site = SiteId(site), .lease = Epoch(1), .weight = 1}).ok());
    }
    pace.window_closed(in, TimePoint(at));
  };
  for (int second = 1; second <= 9; ++second) {
    if (second % 4 == 1) {
      window({1, 2, 3}, std::chrono::seconds(second));
    } else {
      window({1, 2}, std::chrono::seconds(second));
    }
  }
  EXPECT_FALSE(pace.find(SiteId(1))->straggler);
  EXPECT_EQ(pace.find(SiteId(1))->total.quantile(0.5), 1s);
  EXPECT_EQ(pace.find(SiteId(1))->rounds, 8u);
  ASSERT_NE(pace.find(SiteId(3)), nullptr);
  EXPECT_TRUE(pace.find(SiteId(3))->straggler);
  EXPECT_EQ(pace.find(SiteId(3))->score, 4);
  EXPECT_EQ(pace.find(SiteId(3))->late, 0u) << "nobody is late for a window";
  for (int second = 10; second <= 14; ++second) window({1, 2, 3}, std::chrono::seconds(second));
  EXPECT_FALSE(pace.find(SiteId(3))->straggler);
}

TEST(SoftDeadline, IsThePlansUntilTwoRoundsOfHalfAreKnown) {
  Pace pace;
  const Took all{{1, 4s}, {2, 4s}, {3, 4s}, {4, 4s}};
  EXPECT_EQ(soft_deadline(plan(), participants_of(all), pace), 30s);
  close(pace, all, 5s);
  EXPECT_EQ(soft_deadline(plan(), participants_of(all), pace), 30s);
  close(pace, all, 5s);
  EXPECT_EQ(soft_deadline(plan(), participants_of(all), pace), 6s);
  const Took strangers{{1, 4s}, {6, 4s}, {7, 4s}};
  EXPECT_EQ(soft_deadline(plan(), participants_of(strangers), pace), 30s);
  Plan fixed = plan();
  fixed.adaptive_deadlines = false;
  EXPECT_EQ(soft_deadline(fixed, participants_of(all), pace), 30s);
}

TEST(SoftDeadline, DoesNotWaitForStragglersButForTheQuorum) {
  Pace pace;
  const Took all{{1, 4s}, {2, 4s}, {3, 4s}, {4, 12s}, {5, {}}};
  for (int round = 0; round < 2; ++round) close(pace, all, 30s);
  EXPECT_EQ(soft_deadline(plan(3), participants_of(all), pace), 6s);
  EXPECT_EQ(soft_deadline(plan(4), participants_of(all), pace), 18s);
  EXPECT_EQ(soft_deadline(plan(5), participants_of(all), pace), 30s) << "never beyond the plan's";
  Plan heavy = plan(1);
  heavy.weight_min = 301;  // four sites of at most 100
  EXPECT_EQ(soft_deadline(heavy, participants_of(all), pace), 18s);
}

TEST(SoftDeadline, HasAFloor) {
  Pace pace;
  const Took all{{1, 10ms}, {2, 10ms}};
  for (int round = 0; round < 2; ++round) close(pace, all, 20ms);
  EXPECT_EQ(soft_deadline(plan(), participants_of(all), pace), 2s);
  Plan hasty = plan();
  hasty.soft_deadline = 500ms;
  EXPECT_EQ(soft_deadline(hasty, participants_of(all), pace), 500ms);
}

// When more than one in twenty of the typical sites' rounds are late, the deadline was too early: it grows.
TEST(SoftDeadline, CorrectsItselfWhenItCutsOffTypicalSites) {
  Pace pace;
  Took all;
  for (std::uint32_t site = 1; site <= 8; ++site) all[site] = 4s;
  for (int round = 0; round < 3; ++round) close(pace, all, 4s);
  ASSERT_EQ(soft_deadline(plan(), participants_of(all), pace), 6s);
  all[3] = all[5] = std::nullopt;  // 2 of 32
  close(pace, all, 6s);
  EXPECT_EQ(soft_deadline(plan(), participants_of(all), pace), 9s);
}

TEST(TierDeadline, LeavesWhatTransferAndMergeTake) {
  TimeWindow up;
  EXPECT_EQ(tier_deadline(30s, up), 27s) << "no history";
  for (int i = 0; i < 5; ++i) up.add(2s);
  EXPECT_EQ(tier_deadline(30s, up), 27s);
  EXPECT_EQ(tier_deadline(60s, up), 57s);
  EXPECT_EQ(tier_deadline(4s, up), 2s) << "half of it at least";
  TimeWindow fast;
  fast.add(1ms);
  EXPECT_EQ(tier_deadline(50s, fast), 49s) << "never the parent's own";
  EXPECT_EQ(tier_deadline(0s, up), 0s);
  EXPECT_EQ(tier_deadline(-5s, up), 0s);
}

TEST(Stopwatch, MeasuresFromTheOpeningAndFromTheFirstBeginning) {
  Stopwatch watch;
  const auto at = [](Duration t) { return TimePoint(t); };
  watch.opened(at(10s));
  watch.begun(NodeId(1), at(14s));
  watch.begun(NodeId(1), at(17s));  // the session was lost, and it went on
  watch.begun(NodeId(2), at(20s));
  EXPECT_EQ(watch.verified(NodeId(1), true, at(19s)), (Times{4s, 5s, 0s}));
  EXPECT_EQ(watch.verified(NodeId(2), false, at(21s)), (Times{0s, 1s, 0s}));
  EXPECT_FALSE(watch.verified(NodeId(2), false, at(25s)).known()) << "nothing begun since";
  watch.begun(NodeId(3), at(26s));
  watch.opened(at(30s));
  EXPECT_FALSE(watch.verified(NodeId(3), true, at(31s)).known()) << "of the round before";
}

TEST(UpwardPace, LearnsFromWhatTheParentTookAndFromWhatCameTooLate) {
  const auto at = [](int seconds) { return TimePoint(std::chrono::seconds(seconds)); };
  const Duration left = std::chrono::seconds(100);
  UpwardPace pace;
  EXPECT_EQ(pace.tier_deadline(left), std::chrono::seconds(90)) << "no history";
  EXPECT_FALSE(pace.answered(1, true, at(1))) << "nothing was on its way";
  pace.begun(1, at(0));
  EXPECT_FALSE(pace.answered(2, true, at(5))) << "another one's receipt";
  EXPECT_EQ(pace.answered(1, true, at(10)), std::chrono::seconds(10));
  EXPECT_EQ(pace.tier_deadline(left), std::chrono::seconds(85));
  pace.begun(2, at(20));
  EXPECT_FALSE(pace.answered(2, false, at(21))) << "refused: how long it would have taken is not known";
  EXPECT_FALSE(pace.closed(at(22)));
  pace.begun(3, at(30));
  pace.lost();
  EXPECT_FALSE(pace.closed(at(40)));
  pace.begun(4, at(50));
  EXPECT_EQ(pace.closed(at(70)), std::chrono::seconds(20)) << "it took at least that";
  EXPECT_EQ(pace.tier_deadline(left), std::chrono::seconds(70));
}

}  // namespace
}  // namespace fluvial::round

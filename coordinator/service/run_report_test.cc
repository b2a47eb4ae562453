// What people are told of the runs.
#include "coordinator/service/run_report.h"

#include <gmock/gmock.h>

#include <boost/asio/io_context.hpp>
#include <set>
#include <thread>
#include <vector>

namespace fluvial::coordinator {
namespace {

using testing::HasSubstr;

class RunReportTest : public testing::Test {
 protected:
  bool is_told(std::string_view what) {
    bool told = false;
    for (const FeedLine& line : watcher_->lines) told = told || line.json.find(what) != std::string::npos;
    watcher_->lines.clear();
    return told;
  }
  boost::asio::io_context context_;
  telemetry::Metrics metrics_{Role::kCoordinator, "test"};
  Feed feed_{context_.get_executor()};
  RunReport report_{metrics_, telemetry::null_logger(), feed_, [](NodeId) { return std::string("site-a"); }};
  std::shared_ptr<Watcher> watcher_ = feed_.watch();
};

TEST_F(RunReportTest, TheEndOfARunIsToldAfterItsLastEvaluation) {
  std::set<RunId> evaluating{RunId(1), RunId(3)};
  const auto is_evaluating = [&](RunId run) { return evaluating.contains(run); };
  report_.while_evaluating(is_evaluating);
  std::vector<RunId> over;
  report_.when_over([&](RunId run, RunStatus) { over.push_back(run); });
  report_.status_told(RunId(1), RunStatus::kPaused, "by hand");
  EXPECT_TRUE(is_told("paused")) << "that is no end";
  report_.status_told(RunId(1), RunStatus::kDone, "");
  EXPECT_FALSE(is_told("done"));
  EXPECT_TRUE(feed_.holds(RunId(1)));
  EXPECT_FALSE(feed_.holds(RunId(2)));
  report_.status_told(RunId(2), RunStatus::kStopped, "by hand");
  EXPECT_TRUE(is_told("stopped")) << "nothing of this one is waited for";
  report_.status_told(RunId(3), RunStatus::kDone, "");
  EXPECT_TRUE(feed_.holds(RunId(1))) << "though another one has ended since";
  evaluating.erase(RunId(1));
  feed_.release_unless(is_evaluating);
  EXPECT_TRUE(is_told("done"));
  EXPECT_TRUE(feed_.holds(RunId(3)));
  feed_.release_unless(is_evaluating);
  EXPECT_FALSE(is_told("done")) << "once";
  EXPECT_EQ(over, (std::vector<RunId>{RunId(1), RunId(2), RunId(3)}));
}

// A watcher ends where its connection lives.
TEST_F(RunReportTest, WatchersMayLeaveWhileSomethingIsTold) {
  for (int turn = 0; turn < 200; ++turn) {
    std::vector<std::shared_ptr<Watcher>> leaving;
    for (int i = 0; i < 200; ++i) leaving.push_back(feed_.watch());
    std::thread connection([&] { leaving.clear(); });
    feed_.publish({RunId(1), RoundId(2), false, "{}"});
    connection.join();
  }
  EXPECT_EQ(watcher_->lines.size(), 200U);
}

TEST_F(RunReportTest, APassThatIsOverIsLoggedWithItsNumberFromOneAndItsTime) {
  const auto lines = std::make_shared<telemetry::CaptureSink>();
  RunReport report(metrics_, telemetry::Logger(lines), feed_, [](NodeId) { return std::string("site-a"); });
  Reduce effect;
  ASSERT_TRUE(effect.contributors.add({SiteId(1), Epoch(1), 10, {}, 0, {}}).ok());
  const NamedVector mean{.ref = {.bytes = 64}};
  report.pass_over(effect, {.run = RunId(1), .round = RoundId(4), .attempt = AttemptId(2)}, mean,
                   std::chrono::milliseconds(250));
  ASSERT_TRUE(lines->contains("pass over; its mean goes down"));
  const std::vector<telemetry::Field> said{{"run", 1U},          {"round", 4U},
                                           {"attempt", 2U},      {"pass", 1U},
                                           {"contributors", 1U}, {"mean_sha256", to_hex(mean.ref.digest)},
                                           {"bytes", 64U},       {"seconds", 0.25}};
  EXPECT_EQ(lines->records().back().fields, said);
}

TEST_F(RunReportTest, ACommitIsCountedAndTold) {
  store::CommitRow row;
  row.record = {.run = RunId(1), .round = RoundId(4), .late = {SiteId(2)}};
  row.duration_ms = 1500;
  ASSERT_TRUE(row.record.contributors.add({SiteId(1), Epoch(1), 10, {}, 0, {}}).ok());
  row.metrics = {{"loss", 0.75}};
  NextModel next;
  next.step_norm = 2.5;
  row.record.model.bytes = 400;
  next.trained = {.ref = row.record.model, .form = SharedForm{{.bytes = 104}}, .left_out_norm = 0.125};
  report_.say_where_by([](SiteId site) { return site == SiteId(2) ? "training" : "unknown"; });
  report_.committing(row, next);
  report_.committed(row, {});
  report_.evaluated({{"top 1", 0.5}});
  const std::string metrics = metrics_.render();
  EXPECT_THAT(metrics, HasSubstr("fluvial_coordinator_late_sites_total{phase=\"training\"} 1"));
  EXPECT_THAT(metrics, HasSubstr("fluvial_coordinator_training_metric{name=\"loss\"} 0.75"));
  EXPECT_THAT(metrics, HasSubstr("fluvial_coordinator_evaluation_metric{name=\"top_1\"} 0.5"));
  EXPECT_THAT(metrics, HasSubstr("fluvial_coordinator_step_norm 2.5"));
  EXPECT_THAT(metrics, HasSubstr("fluvial_coordinator_model_whole_bytes 400"));
  EXPECT_THAT(metrics, HasSubstr("fluvial_coordinator_model_down_bytes 104"));
  EXPECT_THAT(metrics, HasSubstr("fluvial_coordinator_model_left_out_norm 0.125"));
  EXPECT_THAT(metrics, HasSubstr("fluvial_coordinator_rounds_committed_total 1"));
  EXPECT_THAT(metrics, HasSubstr("contributions_total{outcome=\"counted\"} 1"));
  EXPECT_THAT(metrics, HasSubstr("contributions_total{outcome=\"late\"} 1"));
  EXPECT_THAT(metrics, HasSubstr("fluvial_coordinator_round_seconds_sum 1.5"));
  EXPECT_TRUE(is_told("\"event\":\"committed\""));
}

TEST_F(RunReportTest, OfARoundWithSeveralPassesTheFirstIsTimed) {
  store::CommitRow row;
  row.record = {.run = RunId(1), .round = RoundId(4)};
  round::Contribution one{SiteId(1), Epoch(1), 10, {}, 0, {}};
  one.times.train = std::chrono::seconds(3);
  ASSERT_TRUE(row.record.passes.emplace_back().contributors.add(one).ok());
  one.times.train = std::chrono::seconds(1);
  ASSERT_TRUE(row.record.contributors.add(one).ok());
  report_.committed(row, {});
  EXPECT_THAT(metrics_.render(), HasSubstr("fluvial_coordinator_site_round_seconds_sum 3\n"));
}

TEST_F(RunReportTest, UpdatesOfEarlierRoundsAreCounted) {
  store::CommitRow row;
  row.record = {.run = RunId(1), .round = RoundId(9)};
  for (const std::uint32_t site : {1U, 2U, 3U}) {
    round::Contribution one{SiteId(site), Epoch(1), 10, {}, 0, {}};
    one.admitted = ModelVersion(8);
    one.base = ModelVersion(9 - site);  // 0, 1 and 2 rounds late
    ASSERT_TRUE(row.record.contributors.add(one).ok());
  }
  report_.committed(row, {});
  EXPECT_THAT(metrics_.render(), testing::Not(HasSubstr("site_contributions_total")));
  EXPECT_THAT(metrics_.render(), HasSubstr("fluvial_coordinator_contributions_stale_total 2"));
  EXPECT_THAT(metrics_.render(), HasSubstr("fluvial_coordinator_staleness_rounds_total 3"));
  EXPECT_TRUE(is_told("\"stale\":2"));
  row.record.late_is_next = true;
  report_.committed(row, {});
  EXPECT_THAT(metrics_.render(), HasSubstr("fluvial_coordinator_site_contributions_total{site=\"site-a\"} 3"));
}

TEST_F(RunReportTest, WhoIsAccusedAndNotShownIsCounted) {
  EXPECT_THAT(metrics_.render(), HasSubstr("fluvial_coordinator_contradictions_not_shown_total 0"));
  report_.contradictions_not_shown(NodeId(9), {SiteId(2), {Code::kConflict, "two contents"}},
                                   {Code::kInvalidArgument, "no"}, 3);
  EXPECT_THAT(metrics_.render(), HasSubstr("fluvial_coordinator_contradictions_not_shown_total 3"));
}

TEST_F(RunReportTest, WhatARoundWaitsForIsTimed) {
  for (const Work work :
       {Work::kAttemptRecord, Work::kFinalise, Work::kCommitRecord, Work::kStatusRecord, Work::kCommit}) {
    report_.took(work, std::chrono::milliseconds(250));
  }
  const std::string metrics = metrics_.render();
  for (const char* what : {"journal_record_seconds_sum{record=\"attempt\"}", "finalise_seconds_sum",
                           "journal_record_seconds_sum{record=\"commit\"}",
                           "journal_record_seconds_sum{record=\"status\"}", "commit_seconds_sum"}) {
    EXPECT_THAT(metrics, HasSubstr(std::string(what) + " 0.25"));
  }
}

TEST_F(RunReportTest, ASiteThatWasLateInMostRoundsHasAScore) {
  round::Pace pace;
  const std::vector<round::Participant> all{
      {SiteId(1), Epoch(1), 10}, {SiteId(2), Epoch(1), 10}, {SiteId(3), Epoch(1), 10}};
  round::ContributorSet in;
  for (const std::uint32_t site : {1U, 2U}) {
    round::Contribution one{SiteId(site), Epoch(1), 10, {}, 0, {}};
    one.times.train = std::chrono::seconds(1);
    ASSERT_TRUE(in.add(one).ok());
  }
  store::CommitRow row;
  row.record = {.run = RunId(1), .round = RoundId(1)};
  for (int round = 0; round < 6; ++round) {
    pace.closed(all, in, {}, std::chrono::seconds(10));
    report_.committed(row, pace);
  }
  EXPECT_EQ(metrics_.gauge("stragglers").value(), 1);
  EXPECT_THAT(metrics_.render(), HasSubstr("fluvial_coordinator_site_straggler_score{site=\"site-a\"} "));
}

TEST_F(RunReportTest, ARoundThatOpensAgainIsOneRound) {
  round::AttemptRecord attempt;
  attempt.run = RunId(1);
  attempt.round = RoundId(7);
  for (const std::uint32_t number : {1U, 2U}) {
    attempt.attempt = AttemptId(number);
    report_.attempt_opened(attempt, std::chrono::seconds(10));
  }
  const std::string metrics = metrics_.render();
  EXPECT_THAT(metrics, HasSubstr("fluvial_coordinator_rounds_opened_total 1"));
  EXPECT_THAT(metrics, HasSubstr("fluvial_coordinator_attempts_total 2"));
  EXPECT_THAT(metrics, HasSubstr("fluvial_coordinator_round 7"));
  EXPECT_TRUE(is_told("opened"));
}

}  // namespace
}  // namespace fluvial::coordinator

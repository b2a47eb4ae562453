// What people are told of the runs.
#include "coordinator/service/run_report.h"

#include <gmock/gmock.h>

#include <boost/asio/io_context.hpp>

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
  bool evaluating = true;
  report_.while_evaluating([&] { return evaluating; });
  report_.status_told(RunId(1), RunStatus::kPaused, "by hand");
  EXPECT_TRUE(is_told("paused")) << "that is no end";
  report_.status_told(RunId(1), RunStatus::kDone, "");
  EXPECT_FALSE(is_told("done"));
  EXPECT_TRUE(feed_.holds(RunId(1)));
  EXPECT_FALSE(feed_.holds(RunId(2)));
  feed_.release();
  EXPECT_TRUE(is_told("done"));
  feed_.release();
  EXPECT_FALSE(is_told("done")) << "once";
  evaluating = false;
  report_.status_told(RunId(2), RunStatus::kStopped, "by hand");
  EXPECT_TRUE(is_told("stopped")) << "nothing is waited for";
}

TEST_F(RunReportTest, ACommitIsCountedAndTold) {
  store::CommitRow row;
  row.record = {.run = RunId(1), .round = RoundId(4), .late = {SiteId(2)}};
  row.duration_ms = 1500;
  ASSERT_TRUE(row.record.contributors.add({SiteId(1), Epoch(1), 10, {}, 0, {}}).ok());
  report_.committed(row, {});
  const std::string metrics = metrics_.render();
  EXPECT_THAT(metrics, HasSubstr("fluvial_coordinator_rounds_committed_total 1"));
  EXPECT_THAT(metrics, HasSubstr("contributions_total{outcome=\"counted\"} 1"));
  EXPECT_THAT(metrics, HasSubstr("contributions_total{outcome=\"late\"} 1"));
  EXPECT_THAT(metrics, HasSubstr("fluvial_coordinator_round_seconds_sum 1.5"));
  EXPECT_TRUE(is_told("\"event\":\"committed\""));
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

// What a site's metrics say.
#include "edge/service/log_report.h"

#include <gmock/gmock.h>

#include <limits>

#include "core/base/testing.h"

namespace fluvial::edge {
namespace {

using testing::HasSubstr;
using testing::Not;

class ManualClock final : public Clock {
 public:
  TimePoint now() const override { return now_; }
  WallTime wall_now() const override { return {}; }
  void wait(Duration time) { now_ += time; }

 private:
  TimePoint now_{std::chrono::seconds(1000)};
};

class LogReportTest : public testing::Test {
 protected:
  std::string page() {
    metrics_.measure();
    return metrics_.render();
  }
  void commit() { report_.round_committed({}, {}, RoundId(1)); }
  static store::PendingInfo info(std::uint64_t round) {
    store::PendingInfo info;
    info.start.run = RunId(1);
    info.start.round = RoundId(round);
    info.start.weight = 12;
    info.start.codec = "topk:ratio=0.01";
    info.start.metrics = {{"loss", 0.5}};
    info.start.value_count = 1000;
    info.chunk_bytes = 80;
    info.p_norm = 3;
    return info;
  }

  ManualClock clock_;
  telemetry::Metrics metrics_{Role::kSite, "test"};
  LogReport report_{metrics_, telemetry::null_logger(), clock_};
};

TEST_F(LogReportTest, TheTrainingShareIsFromCommitToCommit) {
  commit();
  EXPECT_THAT(page(), HasSubstr("fluvial_site_training_share_ratio 0\n")) << "since when?";
  clock_.wait(std::chrono::seconds(2));
  report_.working(true);
  clock_.wait(std::chrono::seconds(3));
  EXPECT_THAT(page(), HasSubstr("fluvial_site_training_seconds_total 3\n")) << "while it goes on";
  clock_.wait(std::chrono::seconds(3));
  report_.working(false);
  clock_.wait(std::chrono::seconds(2));
  commit();
  EXPECT_THAT(page(), HasSubstr("fluvial_site_training_share_ratio 0.6\n"));
  EXPECT_THAT(page(), HasSubstr("fluvial_site_training_seconds_total 6\n"));
}

TEST_F(LogReportTest, AnUpdateIsCountedByWhatItCostAndWhatItWas) {
  report_.encoded(info(1), 0.25);
  report_.sent(info(1), false, 0.5);
  report_.fetched(2);
  const std::string text = page();
  for (const char* line : {"fluvial_site_update_norm 3\n", "fluvial_site_update_weight 12\n",
                           "fluvial_site_training_metric{name=\"loss\"} 0.5\n",
                           "fluvial_site_update_bytes_total{codec=\"topk\",tier=\"parent\"} 80\n",
                           "fluvial_site_update_fp32_bytes_total{codec=\"topk\",tier=\"parent\"} 4000\n",
                           "fluvial_site_fetch_seconds_sum 2\n", "fluvial_site_updates_submitted_total 1\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  report_.sent(info(1), true, 0.5);
  EXPECT_THAT(page(), HasSubstr("fluvial_site_updates_resent_total 1\n"));
}

TEST_F(LogReportTest, AnUpdateOfSeveralPassesIsOne) {
  for (const std::uint32_t pass : {0U, 1U}) {
    store::PendingInfo sent = info(1);
    sent.start.passes = 2;
    sent.start.from.pass = pass;
    report_.sent(sent, false, 0.5);
  }
  const std::string text = page();
  for (const char* line : {"fluvial_site_update_bytes_total{codec=\"topk\",tier=\"parent\"} 160\n",
                           "fluvial_site_update_fp32_bytes_total{codec=\"topk\",tier=\"parent\"} 4000\n",
                           "fluvial_site_updates_submitted_total 1\n", "fluvial_site_upload_seconds_count 2\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST_F(LogReportTest, WhatAPassSendsLessOfIsSaidWithItsPassFromOne) {
  const auto lines = std::make_shared<telemetry::CaptureSink>();
  LogReport report(metrics_, telemetry::Logger(lines), clock_, false);
  Offer offer;
  offer.run = RunId(1);
  offer.round = RoundId(4);
  offer.pass = round::Pass{.index = 1, .count = 2};
  report.pass_scaled(offer, 0.5F);
  ASSERT_TRUE(lines->contains("scaled down to the plan's bounds"));
  const std::vector<telemetry::Field> said{{"run", 1U}, {"round", 4U}, {"pass", 2U}, {"factor", 0.5}};
  EXPECT_EQ(lines->records().back().fields, said);
}

TEST_F(LogReportTest, AMetricThatIsNoNumberIsSaidOnceARun) {
  const auto lines = std::make_shared<telemetry::CaptureSink>();
  LogReport report(metrics_, telemetry::Logger(lines), clock_, false);
  const auto said = [&] {
    std::vector<std::string> names;
    for (const telemetry::Record& line : lines->records()) {
      if (line.message != "a metric of the site's workers is not finite; the round's mean is that of the other sites")
        continue;
      names.push_back(std::get<std::string>(line.fields.back().value));
    }
    return names;
  };
  Offer offer;
  for (const std::uint64_t run : {1, 2}) {
    offer.run = RunId(run);
    report.round_opened(offer);
    for (const std::uint64_t round : {1, 2}) {
      store::PendingInfo of = info(round);
      of.start.metrics = {{"loss", std::numeric_limits<double>::quiet_NaN()}, {"accuracy", 0.5}};
      report.encoded(of, 0.25);
    }
  }
  EXPECT_THAT(said(), testing::ElementsAre("loss", "loss"));
}

TEST_F(LogReportTest, AnotherRunHasOtherMetrics) {
  Offer offer;
  offer.run = RunId(1);
  report_.round_opened(offer);
  report_.encoded(info(1), 0.25);
  report_.round_opened(offer);
  EXPECT_THAT(page(), HasSubstr("training_metric{name=\"loss\"}"));
  offer.run = RunId(2);
  report_.round_opened(offer);
  EXPECT_THAT(page(), Not(HasSubstr("training_metric{")));
  report_.train_failed(offer, {Code::kUnavailable, "no worker"});
  EXPECT_THAT(page(), HasSubstr("fluvial_site_train_failures_total 1\n"));
}

TEST_F(LogReportTest, GpusAreCountedByWhatIsNew) {
  report_.gpus_used({.summed = 1, .encoded = 0, .sum_seconds = 0.5, .encode_seconds = 0, .memory_bytes = 4096});
  report_.gpus_used({.summed = 2, .encoded = 1, .sum_seconds = 0.75, .encode_seconds = 0.25, .memory_bytes = 4096});
  const std::string text = page();
  for (const char* line :
       {"gpu_updates_total{step=\"sum\"} 2\n", "gpu_updates_total{step=\"encode\"} 1\n", "gpu_memory_bytes 4096\n",
        "gpu_seconds_total{step=\"sum\"} 0.75\n", "gpu_seconds_total{step=\"encode\"} 0.25\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

}  // namespace
}  // namespace fluvial::edge

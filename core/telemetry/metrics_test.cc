#include "core/telemetry/metrics.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "core/base/result.h"
#include "core/base/testing.h"
#include "core/telemetry/declared.h"
#include "core/telemetry/node_metrics.h"
#include "core/telemetry/reported_metrics.h"
#include "core/telemetry/round_metrics.h"
#include "core/telemetry/site_metrics.h"

namespace fluvial::telemetry {
namespace {

constexpr Role kRoles[] = {Role::kCoordinator, Role::kAggregator, Role::kSite};

bool has_line(const std::string& text, const std::string& start) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(start)) return true;
  }
  return false;
}

TEST(Metrics, RendersConventionalNames) {
  Metrics metrics(Role::kCoordinator, "0.1.0");
  const SessionMetrics sessions(metrics);
  const RoundMetrics round(metrics);
  const RootMetrics root(metrics);
  sessions.open.set(3);
  sessions.session_refused("no_certificate");
  sessions.session_refused("no_certificate");
  sessions.moved(Tier::kChildren, {.bytes_in = 7, .outbox_bytes = 5});
  sessions.moved(Tier::kChildren, {.bytes_in = 1, .outbox_bytes = -3});
  sessions.moved(Tier::kParent, {.bytes_in = 9});  // it has none
  EdgeBytes(metrics, Tier::kChildren).update("int8:block=128", 1000, 900);
  round.rounds_committed.add();
  round.contributions_counted.add(4);
  round.contribution_refused(code_name(Code::kInvalidArgument));
  root.round_seconds.observe(0.02);
  root.late("away");
  double polled = 1;
  Measuring measuring = metrics.before_render([&] { round.round.set(++polled); });
  metrics.measure();
  measuring.reset();
  metrics.measure();
  const std::string text = metrics.render();
  for (const char* line : {"fluvial_coordinator_sessions_open 3",
                           "fluvial_coordinator_sessions_refused_total{reason=\"no_certificate\"} 2",
                           "fluvial_coordinator_received_bytes_total{tier=\"children\"} 8",
                           "fluvial_coordinator_outbox_bytes{tier=\"children\"} 2",
                           "fluvial_coordinator_update_bytes_total{codec=\"int8\",tier=\"children\"} 1000",
                           "fluvial_coordinator_update_fp32_bytes_total{codec=\"int8\",tier=\"children\"} 3600",
                           "fluvial_coordinator_rounds_committed_total 1",
                           "fluvial_coordinator_contributions_total{outcome=\"counted\"} 4",
                           "fluvial_coordinator_contributions_total{outcome=\"late\"} 1",
                           "fluvial_coordinator_late_sites_total{phase=\"away\"} 1",
                           "fluvial_coordinator_contributions_refused_total{reason=\"invalid_argument\"} 1",
                           "fluvial_coordinator_round_seconds_bucket{le=\"0.025\"} 1",
                           "fluvial_coordinator_round_seconds_count 1",
                           "fluvial_coordinator_round 2",
                           "# TYPE fluvial_coordinator_round_seconds histogram",
                           "fluvial_build_info{role=\"coordinator\",version=\"0.1.0\"} 1",
                           "process_resident_memory_bytes ",
                           "process_cpu_seconds_total ",
                           "process_open_fds ",
                           "process_start_time_seconds "}) {
    EXPECT_TRUE(has_line(text, line)) << line << "\n" << text;
  }
  EXPECT_FALSE(has_line(text, "process_resident_memory_bytes 0"));
  EXPECT_FALSE(has_line(text, "process_start_time_seconds 0"));
  EXPECT_FALSE(has_line(text, "fluvial_coordinator_received_bytes_total{tier=\"parent\"}"));
}

TEST(Metrics, WhatIsKnownBeforehandIsThereFromTheFirstScrapeOn) {
  const Metrics metrics(Role::kSite, "0.1.0");
  const std::string text = metrics.render();
  for (const char* line : {"fluvial_site_outcomes_total{outcome=\"late\"} 0", "fluvial_site_train_seconds_count 0",
                           "fluvial_site_handshakes_total{result=\"old_tls\"} 0",
                           "fluvial_site_disk_fsync_seconds_count{what=\"state\"} 0",
                           "fluvial_site_update_bytes_total{codec=\"topk\",tier=\"parent\"} 0"}) {
    EXPECT_TRUE(has_line(text, line)) << line << "\n" << text;
  }
  for (const char* line : {"fluvial_site_disk_fsync_seconds_count{what=\"journal\"}",
                           "fluvial_site_update_bytes_total{codec=\"topk\",tier=\"children\"}",
                           "fluvial_site_update_bytes_total{codec=\"partial\"", "fluvial_site_training_metric",
                           "fluvial_site_rounds_opened_total"}) {
    EXPECT_FALSE(has_line(text, line)) << line;
  }
}

TEST(Metrics, EachIsDeclaredOnceForARoleAndNamedByItsUnit) {
  for (const Role role : kRoles) {
    std::set<std::string_view> seen;
    for (const Subject& subject : declared_metrics()) {
      for (const Declaration& metric : subject.metrics) {
        if (!includes(metric.roles, role)) continue;
        EXPECT_TRUE(seen.insert(metric.name).second) << metric.name;
        EXPECT_EQ(metric.name.ends_with("_total"), metric.kind == Kind::kCounter) << metric.name;
        if (metric.kind == Kind::kHistogram) EXPECT_TRUE(metric.name.ends_with("_seconds")) << metric.name;
        EXPECT_FALSE(metric.help.empty() || metric.help.ends_with('.') || metric.help.find('\n') != metric.help.npos)
            << metric.name;
        EXPECT_TRUE(metric.is_closed() || !metric.since.empty() || !subject.has_prefix)
            << metric.name << ": when does the first series come?";
      }
    }
  }
}

TEST(Metrics, WhatIsNotDeclaredForTheRoleCannotBeCounted) {
  Metrics metrics(Role::kSite, "0.1.0");
  EXPECT_DEATH((void)metrics.counter("surprises_total"), "surprises_total");
  EXPECT_DEATH((void)metrics.gauge("updates_submitted_total"), "updates_submitted_total") << "it is a counter";
  EXPECT_DEATH((void)metrics.counter("rounds_opened_total"), "rounds_opened_total") << "that is the coordinator's";
}

// Compares the generated part of the page; writes it when FLUVIAL_UPDATE_DOCS is set.
TEST(Metrics, ThePageIsTrue) {
  const std::string path = FLUVIAL_SOURCE_DIR "/docs/operations/metrics.md";
  std::string page = text_of_file(path);
  const std::string begin = "<!-- generated -->\n";
  const auto from = page.find(begin);
  const auto to = page.find("<!-- end -->", from);
  ASSERT_TRUE(from != std::string::npos && to != std::string::npos) << path;
  const std::string held = page.substr(from + begin.size(), to - from - begin.size());
  const std::string generated = "\n" + metrics_markdown() + "\n";
  if (held != generated && std::getenv("FLUVIAL_UPDATE_DOCS") != nullptr) {
    page.replace(from + begin.size(), held.size(), generated);
    std::ofstream(path) << page;
    return;
  }
  EXPECT_EQ(held, generated) << "run it with FLUVIAL_UPDATE_DOCS=1";
}

TEST(Metrics, TheSameNameIsTheSameSeries) {
  Metrics metrics(Role::kSite, "0.1.0");
  const SiteMetrics site(metrics);
  site.updates_submitted.add();
  EXPECT_EQ(SiteMetrics(metrics).updates_submitted.value(), 1.0);
  EXPECT_TRUE(has_line(metrics.render(), "fluvial_site_updates_submitted_total 1"));
}

TEST(Metrics, ThreadsMayCountAndRender) {
  Metrics metrics(Role::kAggregator, "0.1.0");
  const RoundMetrics round(metrics);
  std::thread other([&] {
    for (int i = 0; i < 500; ++i) round.contribution_refused(i % 2 == 0 ? "stale" : "data_loss");
  });
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(metrics.render().empty());
  other.join();
  EXPECT_TRUE(has_line(metrics.render(), "fluvial_aggregator_contributions_refused_total{reason=\"stale\"} 250"));
}

TEST(NamedGauges, AreAtMostSoManyAndGoAgain) {
  Metrics metrics(Role::kCoordinator, "0.1.0");
  NamedGauges scores(metrics, "site_straggler_score", 2);
  const auto series = [&](const char* site) {
    return has_line(metrics.render(), std::string("fluvial_coordinator_site_straggler_score{site=\"") + site + "\"} ");
  };
  EXPECT_TRUE(scores.set({{"site", "a"}}, 2));
  EXPECT_TRUE(scores.set({{"site", "b"}}, 3));
  EXPECT_FALSE(scores.set({{"site", "c"}}, 4)) << "no room";
  EXPECT_TRUE(scores.set({{"site", "a"}}, 5)) << "it is there";
  EXPECT_TRUE(series("a") && series("b") && !series("c"));
  scores.replace({{{{"site", "b"}}, 1}, {{{"site", "c"}}, 1}});
  EXPECT_TRUE(!series("a") && series("b") && series("c"));
  EXPECT_TRUE(scores.has({{"site", "c"}}) && !scores.has({{"site", "a"}}));
  scores.replace({});
  EXPECT_TRUE(!series("b") && !series("c"));
}

TEST(ReportedMetrics, NamesBecomeLabels) {
  EXPECT_EQ(reported_label("val/top-1.acc"), "val/top-1.acc");
  EXPECT_EQ(reported_label("a\"} 1\nb"), "a___1_b");
  EXPECT_EQ(reported_label("\xc3\xa4"), "__");
  EXPECT_EQ(reported_label(std::string(100, 'x')).size(), 64u);
}

TEST(ReportedMetrics, TheFirstNamesOfARunAreServed) {
  Metrics metrics(Role::kSite, "0.1.0");
  ReportedMetrics reported(metrics, "training_metric");
  const auto value = [&](const std::string& name) {
    return has_line(metrics.render(), "fluvial_site_training_metric{name=\"" + name + "\"} ");
  };
  const auto dropped = [&] { return metrics.counter("reported_metrics_dropped_total").value(); };
  reported.set({{"loss", 2}, {"acc", 0.5}});
  EXPECT_TRUE(has_line(metrics.render(), "fluvial_site_training_metric{name=\"loss\"} 2"));
  reported.set({{"loss", 1}});
  EXPECT_TRUE(value("loss") && !value("acc")) << "not reported any more";
  EXPECT_EQ(dropped(), 0);

  std::map<std::string, double> many;
  for (int i = 0; i < 40; ++i) many["m" + std::to_string(i)] = i;
  reported.set(many);
  EXPECT_EQ(dropped(), 10) << "30 of them beside loss and acc";
  reported.set({{"loss", 3}, {"m9", 1}});
  EXPECT_TRUE(value("loss")) << "it was among the first";
  EXPECT_EQ(dropped(), 11) << "m9 was not";

  reported.forget();
  EXPECT_FALSE(value("loss"));
  reported.set({{"a b", 1}, {"a_b", 2}});
  EXPECT_TRUE(has_line(metrics.render(), "fluvial_site_training_metric{name=\"a_b\"} 1"));
  EXPECT_EQ(dropped(), 12) << "both cannot have the label";
}

TEST(ReportedMetrics, NoSingleSiteTakesAllNames) {
  Metrics metrics(Role::kCoordinator, "0.1.0");
  ReportedMetrics reported(metrics, "training_metric");
  std::map<std::string, double> values{{"loss", 1}};
  std::map<std::string, std::size_t> by{{"loss", 3}};
  for (int i = 0; i < 64; ++i) {
    values["!" + std::to_string(i)] = i;
    by["!" + std::to_string(i)] = 1;
  }
  reported.set(values, by);
  EXPECT_TRUE(has_line(metrics.render(), "fluvial_coordinator_training_metric{name=\"loss\"} 1"));
  EXPECT_EQ(metrics.counter("reported_metrics_dropped_total").value(), 48);
  reported.forget();
  reported.set(values);
  EXPECT_EQ(metrics.counter("reported_metrics_dropped_total").value(), 48 + 33) << "of one reporter alone all may be";
}

}  // namespace
}  // namespace fluvial::telemetry

// What a running federation serves at /metrics is what is declared (core/telemetry/declared.h), in both directions, and
// promtool has nothing to say against it. A metric that nothing moves in a run is named here with the test that moves
// it.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "core/base/testing.h"
#include "core/telemetry/declared.h"
#include "tests/integration/harness.h"

namespace fluvial::integration {
namespace {

using telemetry::Declaration;

// What one process serves.
struct Served {
  struct Series {
    std::map<std::string, std::string> labels;  // without a bucket's bound
    double value = 0;                           // of a histogram: how many
  };
  std::map<std::string, std::string> kinds;  // by name
  std::map<std::string, std::vector<Series>> series;
};

// name{a="x",b="y"} 1
std::map<std::string, std::string> labels_of(const std::string& text) {
  std::map<std::string, std::string> labels;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t equals = text.find("=\"", at);
    const std::size_t end = text.find('"', equals + 2);
    labels[text.substr(at, equals - at)] = text.substr(equals + 2, end - equals - 2);
    at = end + 2;  // the quote and a comma
  }
  return labels;
}

Served parse(const std::string& text) {
  Served served;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# TYPE ")) {
      const std::size_t blank = line.find(' ', 7);
      served.kinds[line.substr(7, blank - 7)] = line.substr(blank + 1);
    }
    if (line.starts_with('#') || line.empty()) continue;
    const std::size_t blank = line.rfind(' ');
    std::string name = line.substr(0, std::min(line.find('{'), blank));
    const bool is_histogram = name.ends_with("_count") && served.kinds.contains(name.substr(0, name.size() - 6));
    if (name.ends_with("_bucket") ||
        (name.ends_with("_sum") && served.kinds.contains(name.substr(0, name.size() - 4)))) {
      continue;
    }
    const std::size_t brace = line.find('{');
    const std::string inside = brace == std::string::npos ? "" : line.substr(brace + 1, line.rfind('}') - brace - 1);
    if (is_histogram) name = name.substr(0, name.size() - 6);
    served.series[name].push_back({labels_of(inside), std::stod(line.substr(blank + 1))});
  }
  return served;
}

class MetricsTest : public FederationTest {
 protected:
  std::string text_of(const std::string& node) {
    const Result<std::string> page = federation_->metrics_of(node);
    EXPECT_TRUE(page.ok()) << node << ": " << page.error().message;
    return page.ok() ? *page : "";
  }
  Served served_by(const std::string& node) { return parse(text_of(node)); }
  // The value of a series: fluvial_<role>_<what>, with these labels.
  double value_of(const std::string& node, Role role, const std::string& what,
                  const std::map<std::string, std::string>& labels = {}) {
    const Served served = served_by(node);
    const auto found = served.series.find(telemetry::served_name(what, role));
    if (found == served.series.end()) return -1;
    for (const auto& series : found->second) {
      if (series.labels == labels) return series.value;
    }
    return -1;
  }
  void wait_value(const std::string& node, Role role, const std::string& what,
                  const std::map<std::string, std::string>& labels, const std::function<bool(double)>& wanted) {
    double last = -1;
    const auto there = cli::retry(std::chrono::minutes(2),
                                  [&]() -> Result<bool> { return wanted(last = value_of(node, role, what, labels)); });
    EXPECT_TRUE(there.ok() && *there) << node << ": " << what << " is " << last;
  }
  void check_declared(const std::string& node, Role role);
  void check_moved(const std::string& node, Role role, const std::set<std::string_view>& elsewhere);
  void check_promtool(const std::string& node);
};

// Every process' metrics are those declared for its role.
void MetricsTest::check_declared(const std::string& node, Role role) {
  const Served served = served_by(node);
  std::set<std::string> expected;
  for (const telemetry::Subject& subject : telemetry::declared_metrics()) {
    for (const Declaration& metric : subject.metrics) {
      if (!telemetry::includes(metric.roles, role)) continue;
      const std::string name =
          subject.has_prefix ? telemetry::served_name(metric.name, role) : std::string(metric.name);
      expected.insert(name);
      const auto series = served.series.find(name);
      if (series == served.series.end()) {
        EXPECT_FALSE(metric.since.empty()) << node << " does not serve " << name;
        continue;
      }
      EXPECT_EQ(served.kinds.at(name), telemetry::kind_name(metric.kind)) << name;
      for (const telemetry::Label& label : metric.labels) {
        std::set<std::string> known, seen;
        for (const telemetry::LabelValue& value : label.values) {
          if (telemetry::includes(value.roles, role)) known.insert(std::string(value.text));
        }
        for (const Served::Series& one : series->second) {
          EXPECT_EQ(one.labels.size(), metric.labels.size()) << name;
          ASSERT_TRUE(one.labels.contains(std::string(label.name))) << name;
          seen.insert(one.labels.at(std::string(label.name)));
        }
        if (!known.empty()) EXPECT_EQ(seen, known) << node << ": " << name << " by " << label.name;
      }
    }
  }
  for (const auto& [name, series] : served.series) {
    EXPECT_TRUE(expected.contains(name)) << node << " serves " << name << ", which is not declared";
  }
}

// Each metric has a series that is not 0, but for those that need what this run does not have. Some follow a moment
// later: sessions tell every few seconds what they moved.
void MetricsTest::check_moved(const std::string& node, Role role, const std::set<std::string_view>& elsewhere) {
  std::set<std::string_view> still;
  const auto moved = cli::retry(std::chrono::minutes(1), [&]() -> Result<bool> {
    still.clear();
    const Served served = served_by(node);
    for (const telemetry::Subject& subject : telemetry::declared_metrics()) {
      if (!subject.has_prefix) continue;
      for (const Declaration& metric : subject.metrics) {
        if (!telemetry::includes(metric.roles, role) || elsewhere.contains(metric.name)) continue;
        const auto found = served.series.find(telemetry::served_name(metric.name, role));
        const auto is_zero = [](const Served::Series& one) { return one.value == 0; };
        if (found == served.series.end() || std::ranges::all_of(found->second, is_zero)) still.insert(metric.name);
      }
    }
    return still.empty();
  });
  EXPECT_TRUE(moved.ok() && *moved) << node << ": nothing moved " << fmt::format("{}", fmt::join(still, ", "));
}

void MetricsTest::check_promtool(const std::string& node) {
  const std::string file = folder_.file(node + ".metrics");
  std::ofstream(file) << text_of(node);
  const std::string found = folder_.file(node + ".promtool");
  const int status = std::system(fmt::format("promtool check metrics < '{}' > '{}' 2>&1", file, found).c_str());
  EXPECT_EQ(status, 0) << node << ":\n" << fluvial::text_of_file(found);
}

const std::map<std::string, Role> kNodes = {
    {"coordinator", Role::kCoordinator}, {"aggregator-1", Role::kAggregator}, {"site-1", Role::kSite}};

// What no healthy run moves, and the unit test that does.
const std::set<std::string_view> kNotHere = {
    // sessions that are refused, broken or silent: core/net's tests; counted by core/tree/runtime_test
    "sessions_refused_total", "frames_refused_total", "heartbeat_timeouts_total", "reconnects_total",
    // certificates live longer than this run: core/tree/renewal_test, coordinator/service/renewal_desk_test
    "certificate_renewals_total", "renewals_total",
    // whoever lies: core/tree/orders_test, coordinator/service/authorship_test and registry_test, tests/attack
    "parents_distrusted_total", "contributions_forged_total", "identities_held_twice",
    // core/tree/model_receiver_test
    "models_refused_total",
    // nobody is late with `late = "next"` here: coordinator/service/run_report_test
    "contributions_stale_total", "staleness_rounds_total", "site_contributions_total",
    // at the moment of a scrape nothing is queued, or it is over
    "outbox_bytes", "pool_tasks", "lane_tasks", "attempt", "pass", "round_age_seconds", "round_sites",
    // core/tree/parent_side_test
    "contributions_refused_total", "staging_bytes", "staging_spilled_bytes",
    // coordinator/service/run_report_test, run_service_test, member_gauges_test
    "run_pause_reason", "run_waits_for_sites", "sites_without_workers", "clock_offset_seconds", "sites_quarantined",
    "site_quarantined", "contradictions_not_shown_total", "storage_fault", "members_past_aggregator",
    "member_past_aggregator", "reported_metrics_dropped_total", "late_sites_total", "stragglers",
    "site_straggler_score", "quorum", "participants_needed", "hard_deadline_seconds", "run_rounds_planned",
    "last_backup_timestamp_seconds", "journal_free_bytes", "journal_rounds",
    // edge/service's tests; edge/update's on GPUs
    "updates_resent_total", "residuals_dropped_total", "residual_age_rounds", "train_failures_total", "gpus",
    "rounds_forbidden_total", "gpu_updates_total", "gpu_seconds_total", "gpu_memory_bytes"};

TEST_F(MetricsTest, AFederationServesWhatIsDeclaredAndNothingElse) {
  start(2, 1);
  add_workers();
  auto evaluator = local::WorkerClient::attach_with_retry(
      federation_->evaluator_socket(), {.name = "eval", .kind = local::TaskKind::kEvaluate}, std::chrono::seconds(20));
  ASSERT_TRUE(evaluator.ok()) << evaluator.error().message;
  for (const char* site : {"site-1", "site-2"}) {  // whose certificate the coordinator knows from its report alone
    wait_value("coordinator", Role::kCoordinator, "member_certificate_expiry_timestamp_seconds",
               {{"role", "site"}, {"member", site}}, [](double at) { return at > 0; });
  }
  for (const auto& [node, role] : kNodes) check_declared(node, role);  // before anything was counted
  round::Plan three = plan(3);
  three.codec = "int8";
  three.down = "delta:int8";
  std::thread evaluating([client = std::move(*evaluator)]() mutable {
    for (auto task = client.next_task(); task.ok() && *task; task = client.next_task()) {
      if (!client.submit_evaluation({{"accuracy", 0.5}}).ok()) return;
      if ((*task)->round == RoundId(3)) return;
    }
  });
  const std::uint64_t run = start_run(three, 20'000);
  wait_state(run, "done");
  evaluating.join();
  ASSERT_TRUE(federation_->wait_for_model(run, 3).ok());
  wait_value("site-1", Role::kSite, "outcomes_total", {{"outcome", "counted"}}, [](double n) { return n == 3; });
  wait_value("coordinator", Role::kCoordinator, "evaluation_metric", {{"name", "accuracy"}},
             [](double x) { return x == 0.5; });
  for (const auto& [node, role] : kNodes) {
    check_declared(node, role);
    check_moved(node, role, kNotHere);
  }
  EXPECT_EQ(value_of("coordinator", Role::kCoordinator, "run_state", {{"state", "done"}}), 1);
  EXPECT_EQ(value_of("coordinator", Role::kCoordinator, "contributions_total", {{"outcome", "counted"}}), 6);
  EXPECT_EQ(value_of("coordinator", Role::kCoordinator, "training_metric", {{"name", "loss"}}), 1);
  const std::map<std::string, std::string> int8{{"tier", "parent"}, {"codec", "int8"}};
  EXPECT_EQ(value_of("site-1", Role::kSite, "update_fp32_bytes_total", int8), 3 * 4 * 20'000);
  EXPECT_LT(value_of("site-1", Role::kSite, "update_bytes_total", int8), 3 * 2 * 20'000);
  for (const char* what : {"journal", "models"}) {
    EXPECT_GT(value_of("coordinator", Role::kCoordinator, "disk_fsync_seconds", {{"what", what}}), 0) << what;
  }
  EXPECT_GT(value_of("site-1", Role::kSite, "training_share_ratio"), 0);
  EXPECT_LE(value_of("site-1", Role::kSite, "training_share_ratio"), 1);
}

TEST_F(MetricsTest, PromtoolHasNothingToSayAgainstThem) {
  if (std::system("command -v promtool > /dev/null 2>&1") != 0) {
    GTEST_SKIP()
        << "NO PROMTOOL: the metrics are not checked. It is in Debian's package prometheus: ./dev install --deploy";
  }
  start(1, 1);
  add_workers();
  const std::uint64_t run = start_run(plan(1), 1'000);
  wait_state(run, "done");
  for (const auto& [node, role] : kNodes) check_promtool(node);
}

}  // namespace
}  // namespace fluvial::integration

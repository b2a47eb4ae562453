// A round's timeline in a world whose delays and training are known, and whose clocks have nothing to do with each
// other.
#include "coordinator/logic/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

#include "simulator/roles/coordinator.h"
#include "simulator/roles/settle.h"
#include "simulator/run/run.h"

namespace fluvial::simulator {
namespace {

using coordinator::CriticalStep;
using std::chrono::milliseconds;

constexpr std::string_view kScenario = R"(name = "known times"
[tree]
aggregators = 1
sites = 1
[sites]
train_min_ms = 2000
train_max_ms = 2000
[plan]
rounds = 1000
participants.min = 1
participants.quorum = 1
[links.site]
delay_ms = 20
jitter_ms = 0
[links.aggregator]
delay_ms = 30
jitter_ms = 0
[links.coordinator]
delay_ms = 40
jitter_ms = 0
[faults]
until_ms = 0
[limits]
progress_rounds = 0
)";
constexpr std::uint64_t kRound = 30;           // which is looked at
constexpr Duration kHop = milliseconds(70);    // between coordinator and aggregator, one way
constexpr Duration kEdge = milliseconds(50);   // between aggregator and site
constexpr Duration kDisks = milliseconds(20);  // all that is written in a round, and some

class KnownTimes : public testing::Test {
 protected:
  KnownTimes() : world_(*file_.draw(1), 1, 0), inhabitants_(settle()(world_)) {}
  // Until the site has long been below its aggregator, and nodes have told of the round that is looked at.
  void run_a_few_rounds() {
    world_.start_all();
    const TimePoint end = world_.scheduler().now() + std::chrono::minutes(10);
    while (inhabitants_->rounds_committed() < kRound + 5 && world_.step(end)) inhabitants_->check();
    EXPECT_TRUE(world_.violations().empty());
  }
  const coordinator::RoundTrace* trace(std::uint64_t round) {
    const auto* root = static_cast<const CoordinatorRole*>(world_.process(kRoot));
    return root->traces().find(RunId(1), RoundId(round));
  }

  const ScenarioFile file_ = ScenarioFile::parse(std::string(kScenario), "known-times.toml").value();
  World world_;
  std::unique_ptr<Inhabitants> inhabitants_;
};

TEST_F(KnownTimes, TheClocksAreWhereTheyAre) {
  run_a_few_rounds();
  const coordinator::RoundTrace* round = trace(kRound);
  ASSERT_NE(round, nullptr);
  ASSERT_EQ(round->nodes.size(), 3u);
  const Duration ways[] = {Duration(0), kHop, kHop + kEdge};
  std::size_t tier = 0;
  for (const auto& [id, node] : round->nodes) {  // as they were enrolled: the tree from its root
    EXPECT_TRUE(node.told) << id.value();
    if (id == NodeId(0)) {
      ++tier;
      continue;
    }
    const HostId host(static_cast<std::uint32_t>(tier));
    const Duration truth = world_.clock(host).now() - world_.clock(kRoot).now();
    EXPECT_GT(std::chrono::abs(truth), std::chrono::minutes(1)) << "the clocks have nothing to do with each other";
    EXPECT_LE(std::chrono::abs(node.offset - truth), Duration(tier * 2)) << "ways of one length: no error but rounding";
    EXPECT_GE(node.uncertainty, ways[tier]) << "half a round trip";
    EXPECT_LE(node.uncertainty, ways[tier] + milliseconds(2)) << "and what clocks drift";
    ++tier;
  }
}

TEST_F(KnownTimes, TheCriticalPathIsWhatTheRoundWaitedFor) {
  run_a_few_rounds();
  const coordinator::RoundTrace* round = trace(kRound);
  ASSERT_NE(round, nullptr);
  const std::vector<CriticalStep> path = coordinator::critical_path(*round);
  const auto time_of = [&](std::string_view name, std::uint32_t host) {
    Duration time{};
    std::size_t tier = 0;
    for (const auto& [id, node] : round->nodes) {
      for (const CriticalStep& step : path) {
        if (tier == host && step.node == id && step.name == name) time += step.time;
      }
      ++tier;
    }
    return time;
  };
  EXPECT_EQ(time_of("train", 2), milliseconds(2000));
  EXPECT_GE(time_of("send", 2), kEdge);
  EXPECT_LE(time_of("send", 2), kEdge + kDisks);
  EXPECT_GE(time_of("send", 1), kHop);
  EXPECT_LE(time_of("send", 1), kHop + kDisks);
  // The model, which is asked for when the round is told, and comes down both ways.
  EXPECT_GE(time_of("fetch", 1) + time_of("fetch", 2), kHop + kEdge);
  Duration sum{};
  for (const CriticalStep& step : path) sum += step.time;
  EXPECT_EQ(sum, round->committed - round->opened);
  const Duration ways_of_the_round = 2 * (kHop + kEdge);  // told, and brought
  EXPECT_GE(sum, milliseconds(2000) + ways_of_the_round);
  const std::string words =
      coordinator::words_of(*round, path, [](NodeId node) { return "node-" + std::to_string(node.value()); });
  EXPECT_TRUE(words.starts_with("round 30 took 2.")) << words;
  EXPECT_NE(words.find("2.0 s its training"), std::string::npos) << words;
}

}  // namespace
}  // namespace fluvial::simulator

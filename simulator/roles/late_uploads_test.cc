// Late is next where an upload takes longer than rounds do: it goes on, is sent once, and counts, flat and below an
// aggregator, also when its line breaks in between.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "simulator/roles/settle.h"
#include "simulator/run/run.h"

namespace fluvial::simulator {
namespace {

constexpr std::uint64_t kValues = 3000;
constexpr double kUpdateBytes = kValues * sizeof(float);

// Rounds of about a second. A slow site's upload takes four.
std::string scenario(const std::string& tree, const std::string& faults) {
  return R"(name = "late uploads"
[tree]
)" + tree +
         R"(
[sites]
train_min_ms = 100
train_max_ms = 200
[workload]
values = 3000
tensors = 1
integers = 0
[plan]
rounds = 80
chunk_values = 256
late = "next"
staleness_max = 12
staleness_power = 0.5
participants.min = 4
participants.quorum = 2
deadlines.soft_ms = 1000
deadlines.hard_ms = 60000
deadlines.adaptive = false
[links.site]
up_bytes_per_s = 1e6
down_bytes_per_s = 1e7
slow_fraction = 0.3
slow_factor = 350
[session]
outbox_bytes_max = 2048
[faults]
)" + faults +
         R"(
[limits]
progress_rounds = 0
)";
}

class Counts : public Lessons {
 public:
  round::Schema schema() const override { return round::Schema::make({{"w", round::DType::kF32, {kValues}}}).value(); }
  std::vector<float> initial_model() const override { return std::vector<float>(kValues); }
  double slowness(std::size_t) const override { return 1; }
  std::uint32_t weight(std::size_t) const override { return 10; }
  std::vector<float> train(std::size_t site, RoundId round, std::span<const float> base) const override {
    std::vector<float> next(base.begin(), base.end());
    for (float& value : next) value += static_cast<float>(site + 1) / static_cast<float>(round.value() + 8);
    return next;
  }
  void committing(std::span<const Counted> updates, std::span<const float>, TimePoint) override {
    for (const Counted& one : updates) {
      ++updates_;
      if (one.staleness >= 3) ++late_[one.site];
    }
  }
  std::uint64_t updates_ = 0;
  std::map<std::size_t, std::uint64_t> late_;
};

struct Outcome {
  std::uint64_t slow_sites = 0;  // whose updates came three rounds late or more
  std::uint64_t late_updates = 0;
  double sent = 0;  // bytes of updates and what is around them, for each update that counted
};

Outcome run(const std::string& tree, const std::string& faults, std::uint64_t seed) {
  Counts counts;
  const ScenarioFile file = ScenarioFile::parse(scenario(tree, faults), "late-uploads.toml").value();
  const Result<SeedResult> result = run_seed(file, seed, settle(counts), 0);
  EXPECT_TRUE(result.ok());
  if (!result.ok()) return {};
  EXPECT_TRUE(result->violations.empty());
  EXPECT_EQ(result->rounds_committed, 80U);
  Outcome outcome;
  outcome.slow_sites = counts.late_.size();
  for (const auto& [site, late] : counts.late_) outcome.late_updates += late;
  for (const TierTraffic& tier : result->tiers) {
    if (tier.role == Role::kSite) outcome.sent += static_cast<double>(tier.up_bytes) / kUpdateBytes;
  }
  outcome.sent /= static_cast<double>(counts.updates_);
  return outcome;
}

// Seeds in which some sites are slow and the others make the quorum.
void expect_sent_once(const std::string& tree, const std::string& faults, double most) {
  std::uint64_t seen = 0;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const Outcome outcome = run(tree, faults, seed);
    if (outcome.slow_sites == 0) continue;
    ++seen;
    EXPECT_GE(outcome.late_updates, 8 * outcome.slow_sites)
        << "of seed " << seed << ": each of them counts, again and again";
    EXPECT_LE(outcome.sent, most) << "of seed " << seed;
  }
  EXPECT_GE(seen, 2U) << "or nothing was shown";
}

TEST(LateUploads, CountAndAreSentOnce) { expect_sent_once("aggregators = 0\nsites_at_root = 5", "until_ms = 0", 1.3); }

TEST(LateUploads, BelowAnAggregatorToo) { expect_sent_once("aggregators = 2\nsites = 3", "until_ms = 0", 1.3); }

TEST(LateUploads, GoOnWhenTheirLineBreaks) {
  expect_sent_once("aggregators = 1\nsites = 5", "until_ms = 60000\n[faults.network]\nbreak_session = 0.002", 1.6);
}

}  // namespace
}  // namespace fluvial::simulator

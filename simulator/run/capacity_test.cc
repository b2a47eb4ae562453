#include "simulator/run/capacity.h"

#include <gtest/gtest.h>

namespace fluvial::simulator {
namespace {

TEST(Capacity, IsWhatTheRoundsSay) {
  SeedResult result;
  for (std::uint64_t i = 0; i < 20; ++i) {
    const TimePoint opened(std::chrono::seconds(100 * i));
    result.rounds.push_back(
        {i + 1, opened, opened + std::chrono::seconds(i == 19 ? 90 : 30 + i), 10, i < 10 ? 10u : 8u});
  }
  result.tiers = {{1, Role::kAggregator, 2, 2000, 4000}};
  const Capacity capacity = capacity_of(result);
  EXPECT_EQ(capacity.rounds, 20u);
  EXPECT_EQ(capacity.round_p50_s, 39);
  EXPECT_EQ(capacity.round_p95_s, 48);
  EXPECT_EQ(capacity.round_max_s, 90);
  EXPECT_DOUBLE_EQ(capacity.stragglers, 1);
  EXPECT_NEAR(capacity.rounds_per_hour, 3600.0 * 20 / 1990, 1e-9);
  EXPECT_EQ(capacity.tiers[0].up_bytes_a_round, 100);
  EXPECT_EQ(capacity_of({}).rounds, 0u);
}

}  // namespace
}  // namespace fluvial::simulator

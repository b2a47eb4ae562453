#include "cli/bench_counts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace fluvial::cli {
namespace {

ProcessCounts counts(double cpu, std::uint64_t faults, std::uint64_t voluntary, std::uint64_t involuntary) {
  return {
      .cpu_seconds = cpu, .minor_faults = faults, .voluntary_switches = voluntary, .involuntary_switches = involuntary};
}

TEST(BenchCounts, AreOfARoundAndARole) {
  const std::vector<CountedProcess> processes = {
      {"coordinator", counts(1, 100, 10, 1), counts(3, 500, 50, 5), 7'000},
      {"site", counts(2, 0, 0, 0), counts(4, 40, 4, 8), 300},
      {"site", counts(0, 10, 0, 0), counts(2, 50, 4, 0), 500},
  };
  EXPECT_EQ(counts_by_role(processes, 4),
            (std::vector<RoleCounts>{{"coordinator", 1, 0.5, 100, 10, 1, 7'000}, {"site", 2, 1, 20, 2, 2, 500}}));
}

TEST(BenchCounts, AThreadThatEndedTakesNothingAway) {
  EXPECT_EQ(counts_by_role({{"worker", counts(1, 5, 900, 900), counts(1, 5, 100, 100), 1}}, 2),
            (std::vector<RoleCounts>{{"worker", 1, 0, 0, 0, 0, 1}}));
}

TEST(BenchCounts, OneRoundIsNoWarmOne) {
  const json::value committed = json::object{{"event", "committed"}};
  RoundCounts none({{::getpid(), "this", "site"}});
  none.on_event(committed);
  const std::vector<RoleCounts> cold = none.finish();
  ASSERT_EQ(cold.size(), 1U);
  EXPECT_EQ(cold[0].minor_faults, 0);
  EXPECT_EQ(cold[0].cpu_seconds, 0);
  EXPECT_GT(cold[0].peak_own_bytes, 0U);
}

TEST(BenchCounts, WhatComesBeforeTheFirstCommitIsNotCounted) {
  const json::value committed = json::object{{"event", "committed"}};
  const auto touch = [](std::size_t pages) {
    std::vector<char> fresh(pages << 12);
    for (std::size_t at = 0; at < fresh.size(); at += 4096) static_cast<volatile char&>(fresh[at]) = 1;
  };
  RoundCounts counted({{::getpid(), "this", "site"}});
  touch(32'000);  // above the heap's threshold for maps of their own: fresh pages each time
  counted.on_event(committed);
  counted.on_event(json::object{{"event", "opened"}});
  touch(16'000);
  counted.on_event(committed);
  const std::vector<RoleCounts> roles = counted.finish();
  ASSERT_EQ(roles.size(), 1U);
  EXPECT_GE(roles[0].minor_faults, 16'000 / 512) << "pages, or huge ones";
  EXPECT_LT(roles[0].minor_faults, 31'000);
}

}  // namespace
}  // namespace fluvial::cli

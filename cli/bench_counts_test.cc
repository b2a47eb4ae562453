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

TEST(BenchCounts, AreWhatHappensBetweenTheFirstCommitAndTheLast) {
  ProcessCounts now = counts(10, 1'000, 7, 7);
  RoundCounts counted({{::getpid(), "this", "site"}}, [&now](pid_t) { return Result<ProcessCounts>(now); });
  counted.on_event(json::object{{"event", "opened"}});
  now = counts(11, 33'000, 20, 9);
  counted.on_event(json::object{{"event", "committed"}});
  now = counts(12, 40'000, 30, 10);
  counted.on_event(json::object{{"event", "opened"}});
  now = counts(13, 49'000, 40, 19);
  counted.on_event(json::object{{"event", "committed"}});
  now = counts(15, 65'000, 60, 29);
  counted.on_event(json::object{{"event", "committed"}});
  now = counts(99, 99'000, 99, 99);
  std::vector<RoleCounts> roles = counted.finish();
  ASSERT_EQ(roles.size(), 1U);
  roles[0].peak_own_bytes = 0;
  EXPECT_EQ(roles[0], (RoleCounts{"site", 1, 2, 16'000, 20, 10, 0}));
}

TEST(BenchCounts, AProcessThatIsGoneTakesNothingAway) {
  std::vector<Result<ProcessCounts>> seen = {counts(1, 10, 1, 1), counts(3, 50, 5, 5),
                                             Error{Code::kNotFound, "no such process"}};
  auto next = seen.begin();
  RoundCounts counted({{::getpid(), "this", "site"}}, [&next](pid_t) { return *next++; });
  for (int round = 0; round < 3; ++round) counted.on_event(json::object{{"event", "committed"}});
  std::vector<RoleCounts> roles = counted.finish();
  ASSERT_EQ(roles.size(), 1U);
  roles[0].peak_own_bytes = 0;
  EXPECT_EQ(roles[0], (RoleCounts{"site", 1, 1, 20, 2, 2, 0}));
}

}  // namespace
}  // namespace fluvial::cli

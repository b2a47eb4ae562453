// Certificates that live for seconds, and authorities that follow each other, in a world where nothing goes wrong: no
// round takes note of it.
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "simulator/roles/settle.h"
#include "simulator/run/run.h"

namespace fluvial::simulator {
namespace {

constexpr std::uint64_t kRounds = 200;
constexpr std::string_view kInPeace = R"(name = "renewals in peace"
[tree]
aggregators = 2
sites = 3
[sites]
train_min_ms = 100
train_max_ms = 400
[plan]
rounds = 200
participants.min = 6
participants.quorum = 1
deadlines.soft_ms = 5000
deadlines.hard_ms = 10000
[faults]
until_ms = 0
[faults.certificates]
life_s = 4
[limits]
progress_rounds = 0
)";

void lose_no_round(const std::string& scenario) {
  const auto file = ScenarioFile::parse(scenario, "renewals.toml");
  ASSERT_TRUE(file.ok()) << file.error().message;
  const auto run = run_seed(*file, 1, settle(), 0);
  ASSERT_TRUE(run.ok()) << run.error().message;
  for (const Violation& violation : run->violations) ADD_FAILURE() << violation.invariant << ": " << violation.detail;
  ASSERT_EQ(run->rounds.size(), kRounds);
  EXPECT_GT(run->virtual_s, 80) << "twenty lives of a certificate";
  for (const RoundReport& round : run->rounds) {
    EXPECT_EQ(round.participants, 6u) << "round " << round.round;
    EXPECT_EQ(round.contributors, 6u) << "round " << round.round;
    EXPECT_LT(round.committed - round.opened, std::chrono::seconds(2)) << "round " << round.round;
  }
}

TEST(Renewals, NoRoundIsLostToThem) { lose_no_round(std::string(kInPeace)); }

TEST(Renewals, NorToOneAuthorityAfterAnother) {
  std::string scenario(kInPeace);
  const std::string none = "until_ms = 0";
  scenario.replace(scenario.find(none), none.size(), "until_ms = 60000");
  const std::string life = "life_s = 4\n";
  scenario.insert(scenario.find(life) + life.size(), "rollover_steps_per_minute = 30\n");
  lose_no_round(scenario);
}

}  // namespace
}  // namespace fluvial::simulator

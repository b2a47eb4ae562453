#include "core/round/worker_config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace fluvial::round {
namespace {

std::vector<double> values(const Schedule& schedule, std::uint64_t rounds) {
  EXPECT_TRUE(check_schedules({{}, {{"rate", schedule}}}, rounds).ok());
  std::vector<double> all;
  for (std::uint64_t round = 1; round <= rounds; ++round) all.push_back(value_at(schedule, round, rounds));
  return all;
}
using Values = std::vector<double>;

// edge/python/tests/test_config.py compares whole runs with numpy.
TEST(Schedules, ByRound) {
  EXPECT_EQ(values({.start = 0.3}, 3), (Values{0.3, 0.3, 0.3}));
  EXPECT_EQ(values({.start = 1, .warmup = 4}, 5), (Values{0.25, 0.5, 0.75, 1, 1}));
  EXPECT_EQ(values({.start = 1, .end = 0}, 5), (Values{1, 0.75, 0.5, 0.25, 0}));
  EXPECT_EQ(values({.start = 1, .end = 0, .rounds = 3}, 5), (Values{1, 0.5, 0, 0, 0})) << "it stays at its end";
  EXPECT_EQ(values({.start = 1, .end = 3, .warmup = 2}, 4), (Values{0.5, 1, 2, 3}));
  EXPECT_EQ(values({.start = 8, .decay = 0.5}, 4), (Values{8, 4, 2, 1}));
  EXPECT_EQ(values({.start = 8, .decay = 0.5, .every = 2}, 5), (Values{8, 8, 4, 4, 2}));
  EXPECT_EQ(values({.start = 8, .end = 3, .decay = 0.5}, 4), (Values{8, 4, 3, 3}));
  EXPECT_EQ(values({.start = -8, .end = -3, .decay = 0.5}, 4), (Values{-8, -4, -3, -3}));
  EXPECT_EQ(values({.start = 8, .decay = 0.5, .warmup = 2}, 4), (Values{4, 8, 4, 2}));
  const Values cosine = values({.named = Schedule::Kind::kCosine, .start = 2}, 3);
  EXPECT_EQ(cosine[0], 2);
  EXPECT_NEAR(cosine[1], 1, 1e-15);
  EXPECT_EQ(cosine[2], 0);
  EXPECT_EQ(values({.start = 1, .end = 0}, 1), (Values{1}));
}

TEST(Schedules, AModelThatNoRoundMadeHasTheFirstRoundsValues) {
  EXPECT_EQ(value_at({.start = 1, .warmup = 4}, 0, 10), 0.25);
  EXPECT_EQ(value_at({.start = 1, .decay = 0.5}, 0, 10), 1);
}

TEST(Schedules, ARunOfManyRounds) {
  const Schedule decay{.start = 1, .decay = 0.5, .every = 1'000'000};
  EXPECT_EQ(value_at(decay, 1'000'000'000, 1'000'000'000), std::pow(0.5, 999));
  EXPECT_EQ(value_at({.start = 1, .decay = 0.5}, 1'000'000'000, 1'000'000'000), 0);
}

TEST(WorkerConfig, ARoundHasPlainValues) {
  const WorkerTable table{{{"network", "small"}, {"widths", std::vector<double>{1, 2}}},
                          {{"rate", {.start = 4, .decay = 0.5}}}};
  EXPECT_EQ(config_of(table, RoundId(2), 5),
            (WorkerConfig{{"network", "small"}, {"rate", 2.0}, {"widths", std::vector<double>{1, 2}}}));
}

std::string refusal(const WorkerTable& table, std::uint64_t rounds = 10) {
  Status status = check_worker_table(table);
  if (status.ok()) status = check_schedules(table, rounds);
  if (status.ok()) return "(taken)";
  EXPECT_EQ(status.error().code, Code::kInvalidArgument);
  return status.error().message;
}
std::string refusal_of(WorkerValue value) { return refusal({{{"x", std::move(value)}}, {}}); }
std::string refusal_of(Schedule schedule, std::uint64_t rounds = 10) {
  return refusal({{}, {{"x", schedule}}}, rounds);
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(WorkerConfig, ValuesHaveBounds) {
  EXPECT_EQ(refusal_of(kInfinity), "worker.x = inf: expected a finite number");
  EXPECT_EQ(refusal_of(true), "(taken)");
  EXPECT_EQ(refusal_of(std::string(1024, 'a')), "(taken)");
  const std::string text = ": expected a text of at most 1024 characters, none of them a control character";
  EXPECT_EQ(refusal_of(std::string(1025, 'a')), "worker.x = '" + std::string(80, 'a') + "'" + text);
  EXPECT_EQ(refusal_of("a\nb"), "worker.x = 'a b'" + text);
  EXPECT_EQ(refusal_of("\xff"), "worker.x = '?'" + text);
  EXPECT_EQ(refusal_of(std::vector<double>(256, 1.0)), "(taken)");
  EXPECT_EQ(refusal_of(std::vector<double>(257, 1.0)),
            "worker.x = (list): expected a list of 1 to 256 numbers or texts");
  EXPECT_EQ(refusal_of(std::vector<double>{}), "worker.x = (list): expected a list of 1 to 256 numbers or texts");
  EXPECT_EQ(refusal_of(std::vector<double>{1, kInfinity}), "worker.x = (list): expected finite numbers");
  EXPECT_EQ(refusal_of(std::vector<std::string>{"a", "b\t"}), "worker.x = (list)" + text);
  EXPECT_EQ(refusal_of(std::vector<std::string>(15, std::string(1024, 'a'))), "(taken)");
  EXPECT_EQ(refusal_of(std::vector<std::string>(16, std::string(1024, 'a'))),
            "worker = (table): expected at most 16384 bytes, not 16385");
}

TEST(WorkerConfig, ATableHasBounds) {
  WorkerTable table;
  for (int i = 0; i < 32; ++i) table.values[std::to_string(i)] = 1.0;
  for (int i = 32; i < 64; ++i) table.schedules[std::to_string(i)] = {.start = 1};
  EXPECT_EQ(refusal(table), "(taken)");
  table.schedules["64"] = {.start = 1};
  EXPECT_EQ(refusal(table), "worker = (table): expected at most 64 keys");
  EXPECT_EQ(refusal({{{"x", 1.0}}, {{"x", {.start = 1}}}}), "worker.x = 1: expected either a value or a schedule");
  EXPECT_EQ(refusal({{}, {{std::string(65, 'k'), {.start = 1}}}}),
            "worker." + std::string(65, 'k') + " = (schedule): expected a name of at most 64 characters");
}

TEST(Schedules, ARefusalNamesAPartThatIsThere) {
  EXPECT_EQ(refusal_of(Schedule{}), "worker.x = {}: expected start, as in {start = 0.1, decay = 0.99}");
  EXPECT_EQ(refusal_of(Schedule{.decay = 0.9}),
            "worker.x.decay = 0.9: expected beside it start, as in {start = 0.1, decay = 0.99}");
  EXPECT_EQ(refusal_of(Schedule{.named = Schedule::Kind::kDecay, .start = 1}),
            "worker.x.schedule = 'decay': expected beside it decay, as in {start = 0.1, decay = 0.99}");
  EXPECT_EQ(refusal_of(Schedule{.start = kInfinity}), "worker.x.start = inf: expected a finite number");
  EXPECT_EQ(refusal_of(Schedule{.start = 1, .end = std::nan("")}), "worker.x.end = nan: expected a finite number");
  EXPECT_EQ(refusal_of(Schedule{.start = 1, .decay = 0}), "worker.x.decay = 0: expected above 0, at most 1000000");
  EXPECT_EQ(refusal_of(Schedule{.start = 1, .decay = std::nan("")}),
            "worker.x.decay = nan: expected above 0, at most 1000000");
  EXPECT_EQ(refusal_of(Schedule{.start = 1, .decay = 0.5, .every = 0}), "worker.x.every = 0: expected 1 to 1000000000");
  EXPECT_EQ(refusal_of(Schedule{.start = 1, .end = 0, .rounds = 0}), "worker.x.rounds = 0: expected 1 to 1000000000");
  EXPECT_EQ(refusal_of(Schedule{.start = 1, .warmup = 1'000'000'001}),
            "worker.x.warmup = 1000000001: expected 0 to 1000000000");
  EXPECT_EQ(refusal_of(Schedule{.start = 1, .end = 0, .warmup = 10}),
            "worker.x.warmup = 10: expected less than the 10 rounds of the schedule");
  EXPECT_EQ(refusal_of(Schedule{.start = 1, .end = 0, .warmup = 9}), "(taken)");
  EXPECT_EQ(refusal_of(Schedule{.start = 1, .decay = 2}, 1'024), "(taken)");
  EXPECT_EQ(refusal_of(Schedule{.start = 1, .decay = 2}, 1'025),
            "worker.x.decay = 2: expected values that stay finite");
}

TEST(Schedules, APartThatMeansNothingIsRefused) {
  EXPECT_EQ(refusal_of(Schedule{.start = 1, .every = 2}),
            "worker.x.every = 2: expected none for schedule = \"constant\"");
  EXPECT_EQ(refusal_of(Schedule{.start = 1, .rounds = 2}),
            "worker.x.rounds = 2: expected none for schedule = \"constant\"");
  EXPECT_EQ(refusal_of(Schedule{.start = 1, .decay = 0.5, .rounds = 2}),
            "worker.x.rounds = 2: expected none for schedule = \"decay\"");
  EXPECT_EQ(refusal_of(Schedule{.named = Schedule::Kind::kLinear, .start = 1, .decay = 0.5}),
            "worker.x.decay = 0.5: expected none for schedule = \"linear\"");
  EXPECT_EQ(refusal_of(Schedule{.named = Schedule::Kind::kConstant, .start = 1, .end = 0.5}),
            "worker.x.end = 0.5: expected none for schedule = \"constant\"");
}

TEST(Schedules, PartsAreWrittenAndReadAgain) {
  const Schedule all{
      .named = Schedule::Kind::kDecay, .start = 1, .end = 2, .decay = 3, .every = 4, .rounds = 5, .warmup = 6};
  Schedule read;
  for (const auto& [name, value] : parts_of(all)) EXPECT_TRUE(set_part(read, name, value).ok()) << name;
  EXPECT_EQ(read, all);
  EXPECT_EQ(parts_of(all).size(), schedule_parts().size());
  EXPECT_EQ(set_part(read, "strat", 1.0).error().code, Code::kNotFound);
  EXPECT_EQ(set_part(read, "start", "1").error().message, "expected a number");
  EXPECT_EQ(set_part(read, "every", 1.5).error().message, "expected a whole number from 0 to 1000000000");
  EXPECT_EQ(set_part(read, "every", -1.0).error().message, "expected a whole number from 0 to 1000000000");
  EXPECT_EQ(set_part(read, "every", std::nan("")).error().message, "expected a whole number from 0 to 1000000000");
  EXPECT_EQ(set_part(read, "schedule", "sine").error().message, "expected constant, linear, cosine or decay");
  EXPECT_EQ(set_part(read, "schedule", 1.0).error().message, "expected constant, linear, cosine or decay");
}

}  // namespace
}  // namespace fluvial::round

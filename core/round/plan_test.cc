#include "core/round/plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "core/round/plan_test_support.h"

namespace fluvial::round {
namespace {

std::string refusal(const std::function<void(Plan&)>& damage) {
  Plan plan = unusual_plan();
  damage(plan);
  const Status status = check_plan(plan);
  if (status.ok()) return "(taken)";
  EXPECT_EQ(status.error().code, Code::kInvalidArgument);
  return status.error().message;
}
#define REFUSAL(change) refusal([](Plan& plan) { change; })

TEST(Plan, CheckNamesTheKeyItsValueAndTheRange) {
  EXPECT_TRUE(check_plan(unusual_plan()).ok());
  EXPECT_EQ(REFUSAL(plan.name = ""), "name = '': expected 1 to 63 characters");
  EXPECT_EQ(REFUSAL(plan.name = std::string(64, 'n')),
            "name = '" + std::string(64, 'n') + "': expected 1 to 63 characters");
  EXPECT_EQ(REFUSAL(plan.rounds = 0), "rounds = 0: expected 1 to 1000000000");
  EXPECT_EQ(REFUSAL(plan.rounds = 1'000'000'001), "rounds = 1000000001: expected 1 to 1000000000");
  EXPECT_EQ(REFUSAL(plan.local_steps = 0), "local_steps = 0: expected 1 to 1000000000");
  EXPECT_EQ(REFUSAL(plan.chunk_values = 255), "chunk_values = 255: expected 256 to 1048576");
  EXPECT_EQ(REFUSAL(plan.chunk_values = (1 << 20) + 1), "chunk_values = 1048577: expected 256 to 1048576");
  EXPECT_EQ(REFUSAL(plan.fraction_bits = 7), "fraction_bits = 7: expected 8 to 60");
  EXPECT_EQ(REFUSAL(plan.fraction_bits = 61), "fraction_bits = 61: expected 8 to 60");
  EXPECT_EQ(REFUSAL(plan.value_abs_max = 0.0009), "value_abs_max = 9e-04: expected 0.001 to 1e+09");
  EXPECT_EQ(REFUSAL(plan.value_abs_max = std::nan("")), "value_abs_max = nan: expected 0.001 to 1e+09");
  EXPECT_EQ(REFUSAL(plan.update_norm_max = -1), "update_norm_max = -1: expected 0 to 1e+30");
  EXPECT_EQ(REFUSAL(plan.staleness_max = 0), "staleness_max = 0: expected 1 to 16");
  EXPECT_EQ(REFUSAL(plan.staleness_max = 17), "staleness_max = 17: expected 1 to 16");
  EXPECT_EQ(REFUSAL(plan.staleness_power = -1), "staleness_power = -1: expected 0 to 4");
  EXPECT_EQ(REFUSAL(plan.participants_fraction = 0), "participants.fraction = 0: expected above 0, at most 1");
  EXPECT_EQ(REFUSAL(plan.participants_fraction = 1.5), "participants.fraction = 1.5: expected above 0, at most 1");
  EXPECT_EQ(REFUSAL(plan.participants_fraction = std::nan("")),
            "participants.fraction = nan: expected above 0, at most 1");
  EXPECT_EQ(REFUSAL(plan.participants_min = 0), "participants.min = 0: expected 1 to 1000000");
  EXPECT_EQ(REFUSAL(plan.quorum = 1'000'001), "participants.quorum = 1000001: expected 1 to 1000000");
  EXPECT_EQ(REFUSAL(++plan.weight_min),
            "participants.weight_min = 4611686018427387905: expected 1 to 4611686018427387904");
  EXPECT_EQ(REFUSAL(plan.soft_deadline = Milliseconds(0)), "deadlines.soft_ms = 0: expected 1 to 86400000");
  EXPECT_EQ(REFUSAL(plan.soft_deadline_min = Milliseconds(-1)), "deadlines.soft_min_ms = -1: expected 0 to 86400000");
  EXPECT_EQ(REFUSAL(plan.hard_deadline = Milliseconds(6'999)),
            "deadlines.hard_ms = 6999: expected at least deadlines.soft_ms = 7000");
  EXPECT_EQ(REFUSAL(plan.hard_deadline = Milliseconds(86'400'001)),
            "deadlines.hard_ms = 86400001: expected 1 to 86400000");
  EXPECT_EQ(REFUSAL(plan.attempts_max = 0), "attempts_max = 0: expected 1 to 1000");
  EXPECT_EQ(REFUSAL(plan.optimizer.lr = 0), "optimizer.learning_rate = 0: expected 1e-12 to 1e+06");
  EXPECT_EQ(REFUSAL(plan.optimizer.momentum = 1), "optimizer.momentum = 1: expected 0 to below 1");
  EXPECT_EQ(REFUSAL(plan.residual_norm_max = std::numeric_limits<double>::infinity()),
            "residual.norm_max = inf: expected 0 to 1e+30");
  EXPECT_EQ(REFUSAL(plan.models_kept = 0), "models_kept = 0: expected 1 to 1000000");
  EXPECT_EQ(REFUSAL(plan.models_kept_best = "two words"),
            "models_kept_best = 'two words': expected a metric's name, as in test_loss:min or test_accuracy:max");
  EXPECT_EQ(REFUSAL(plan.workers_deadline = Milliseconds(86'400'001)),
            "workers.deadline_ms = 86400001: expected 0 to 86400000");
  EXPECT_EQ(REFUSAL(for (int i = 0; i < 63; ++i) plan.worker.values[std::to_string(i)] = 1.0),
            "worker = (table): expected at most 64 keys");
  EXPECT_EQ(REFUSAL(plan.worker.values["lr"] = std::numeric_limits<double>::infinity()),
            "worker.lr = inf: expected a finite number");
  EXPECT_EQ(REFUSAL(plan.worker.values[std::string(65, 'k')] = 1.0),
            "worker." + std::string(65, 'k') + " = 1: expected a name of at most 64 characters");
  EXPECT_EQ(REFUSAL(plan.worker.schedules["rate"].end = 0.1),
            "worker.rate.end = 0.1: expected beside it start, as in {start = 0.1, decay = 0.99}");
}

TEST(Plan, CheckTakesTheEndsOfARange) {
  EXPECT_EQ(REFUSAL(plan.name = std::string(63, 'n')), "(taken)");
  EXPECT_EQ(REFUSAL(plan.rounds = 1'000'000'000), "(taken)");
  EXPECT_EQ(REFUSAL(plan.chunk_values = 256), "(taken)");
  EXPECT_EQ(REFUSAL(plan.fraction_bits = 60), "(taken)");
  EXPECT_EQ(REFUSAL(plan.value_abs_max = 1e-3), "(taken)");
  EXPECT_EQ(REFUSAL(plan.update_norm_max = 1e30), "(taken)");
  EXPECT_EQ(REFUSAL(plan.participants_fraction = 1), "(taken)");
  EXPECT_EQ(REFUSAL(plan.hard_deadline = plan.soft_deadline), "(taken)");
  EXPECT_EQ(REFUSAL(plan.seed = ~std::uint64_t{0}), "(taken)");
  EXPECT_EQ(REFUSAL(plan.workers_deadline = {}), "(taken)");
}

}  // namespace
}  // namespace fluvial::round

#include "simulator/run/calibrate.h"

#include <gtest/gtest.h>

namespace fluvial::simulator {
namespace {

// The measurements of processes with known costs.
MeasuredRun run_of(std::uint64_t sites, std::uint64_t aggregators, double bytes_a_value, const ComputeScenario& costs) {
  MeasuredRun run{.sites = sites, .aggregators = aggregators, .values = 1'000'000, .rounds = 10};
  const auto s = static_cast<double>(sites);
  const auto a = static_cast<double>(aggregators);
  const double model = 4e6;
  run.update_bytes = bytes_a_value * 1e6;
  const double partial = 7e6;
  run.root_up_bytes = aggregators > 0 ? a * partial : s * run.update_bytes;
  run.root_down_bytes = (aggregators > 0 ? a : s) * model;
  const auto seconds = [](double ns) { return 10 * ns * 1e-9; };
  run.site_cpu_s = 0.04 + seconds(costs.encode_ns * 1e6 + costs.byte_ns * (run.update_bytes + model));
  if (aggregators > 0) {
    run.aggregator_cpu_s = 0.02 + seconds(costs.merge_ns * 1e6 * (s / a + 1) +
                                          costs.byte_ns * (s / a * (run.update_bytes + model) + model + partial));
  }
  run.coordinator_cpu_s = 0.02 + seconds((costs.merge_ns * (aggregators > 0 ? a : s) + costs.finalise_ns) * 1e6 +
                                         costs.byte_ns * (run.root_up_bytes + run.root_down_bytes));
  return run;
}

TEST(Calibrate, FindsTheCostsThatMadeTheFigures) {
  ComputeScenario costs;
  costs.encode_ns = 12;
  costs.merge_ns = 3;
  costs.finalise_ns = 8;
  costs.byte_ns = 1.1;
  const auto found =
      calibrate({run_of(2, 0, 1, costs), run_of(6, 0, 1, costs), run_of(4, 0, 4, costs), run_of(4, 2, 1, costs)}, {});
  ASSERT_TRUE(found.ok());
  EXPECT_NEAR(found->encode_ns, 12, 0.2);
  EXPECT_NEAR(found->merge_ns, 3, 0.1);
  EXPECT_NEAR(found->finalise_ns, 8, 0.2);
  EXPECT_NEAR(found->byte_ns, 1.1, 0.05);
}

TEST(Calibrate, WhatOneRunLeavesOpenIsNeverBelowZero) {
  ComputeScenario costs;
  costs.encode_ns = 0;
  costs.merge_ns = 0;
  costs.finalise_ns = 20;
  costs.byte_ns = 0;
  const auto found = calibrate({run_of(4, 0, 1, costs)}, {});
  ASSERT_TRUE(found.ok());
  for (const double cost : {found->encode_ns, found->merge_ns, found->finalise_ns, found->byte_ns}) EXPECT_GE(cost, 0);
}

TEST(Calibrate, ARunOfNothingSaysNothing) {
  EXPECT_EQ(calibrate({MeasuredRun{}}, {}).error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace fluvial::simulator

// For tests of what carries a plan: one that no default is part of.
#pragma once

#include "core/round/plan.h"

namespace fluvial::round {

// check_plan() passes; every key is off its default. Schedules are apart: they do not cross a wire.
inline Plan unusual_plan() {
  Plan plan;
  plan.name = "digits";
  plan.rounds = 31;
  plan.local_steps = 17;
  plan.codec = "topk:ratio=0.05";
  plan.down = "delta:int8:block=512,rounding=stochastic";
  plan.chunk_values = 4096;
  plan.fraction_bits = 33;
  plan.value_abs_max = 16.5;
  plan.update_norm_max = 1e-3;
  plan.participants_fraction = 0.1;
  plan.participants_min = 4;
  plan.quorum = 3;
  plan.weight_min = std::uint64_t{1} << 62;
  plan.soft_deadline = Milliseconds(7'000);
  plan.adaptive_deadlines = false;
  plan.soft_deadline_min = Milliseconds(1'500);
  plan.hard_deadline = Milliseconds(90'000);
  plan.attempts_max = 1'000;
  plan.optimizer = {.kind = Optimizer::kLars, .lr = 0.5, .momentum = 0.8, .trust = 0.25, .scale_to = 900};
  plan.optimizer.averaged = "norm*.mean,*.statistics";
  plan.residual_norm_max = 2.5;
  plan.residual_age_max_rounds = 12;
  plan.models_kept = 8;
  plan.models_kept_best = "test_accuracy:max";
  plan.seed = (std::uint64_t{1} << 53) + 1;  // which no double holds
  plan.sum_digest = true;
  plan.metrics_by_site = false;
  plan.late = "next";
  plan.staleness_max = 3;
  plan.staleness_power = 0.75;
  plan.workers_missing = MissingWorkers::kDecline;
  plan.workers_deadline = Milliseconds(4'321);
  plan.worker.values = {{"lr", 0.1},
                        {"batch", 32.0},
                        {"network", "wide \"resnet\""},
                        {"nesterov", true},
                        {"widths", std::vector<double>{16, 32.5}},
                        {"layers", std::vector<std::string>{"conv1", "fc"}}};
  return plan;
}
inline Plan scheduled_plan() {
  Plan plan = unusual_plan();
  plan.worker.schedules = {
      {"rate", {.named = Schedule::Kind::kCosine, .start = 0.1, .end = 0.001, .rounds = 20, .warmup = 3}},
      {"momentum", {.start = 0.9, .decay = 0.5, .every = 10}}};
  return plan;
}

}  // namespace fluvial::round

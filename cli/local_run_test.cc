#include "cli/local_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/config/plan_file.h"

namespace fluvial::cli {
namespace {

using namespace std::chrono_literals;

round::Plan other_than_default() {
  round::Plan plan;
  plan.name = "a run";
  plan.rounds = 11;
  plan.local_steps = 12;
  plan.codec = "topk:ratio=0.05";
  plan.chunk_values = 4'096;
  plan.fraction_bits = 24;
  plan.value_abs_max = 16.5;
  plan.update_norm_max = 1e-3;
  plan.participants_fraction = 0.1;
  plan.participants_min = 4;
  plan.quorum = 3;
  plan.weight_min = 21;
  plan.soft_deadline = 7s;
  plan.adaptive_deadlines = false;
  plan.soft_deadline_min = 1'500ms;
  plan.hard_deadline = 90s;
  plan.attempts_max = 1'000;
  plan.optimizer = round::parse_server_optimizer("fedadam:lr=0.02,beta1=0.8,warmup=5").value();
  plan.residual_norm_max = 2.5;
  plan.residual_age_max_rounds = 9;
  plan.models_kept = 2;
  plan.seed = 77;
  plan.sum_digest = true;
  plan.workers_missing = round::MissingWorkers::kDecline;
  plan.workers_deadline = 90s;
  plan.worker = {{"lr", 0.1}, {"batch", 32}};
  return plan;
}

TEST(LocalRun, PlanFileKeepsEveryKeyOfThePlan) {
  const round::Plan plan = other_than_default();
  const auto read = config::parse_plan(plan_to_toml(plan, "model.safetensors"), "/folder/plan.toml");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->plan, plan) << plan_to_toml(read->plan, "model.safetensors");
  EXPECT_EQ(read->model, "/folder/model.safetensors");
}

// A key that plan.toml has and plan_to_toml() forgets would be a default in the plan read back.
TEST(LocalRun, PlanFileNamesEveryKeyThereIs) {
  const std::string text = "\n" + plan_to_toml(other_than_default(), "m");
  for (const auto& key : config::describe_plan()) {
    if (key.key == "worker.*" || key.key == "optimizer.learning_rate" || key.key == "optimizer.momentum") {
      continue;  // the optimizer's options stand in its name
    }
    const auto dot = key.key.rfind('.');
    EXPECT_THAT(text, testing::HasSubstr("\n" + key.key.substr(dot == std::string::npos ? 0 : dot + 1) + " = "))
        << key.key;
  }
}

}  // namespace
}  // namespace fluvial::cli

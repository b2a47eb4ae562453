#include "cli/local_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/config/plan_file.h"
#include "core/round/plan_test_support.h"

namespace fluvial::cli {
namespace {

TEST(LocalRun, PlanFileKeepsEveryKeyOfThePlan) {
  const round::Plan plan = round::unusual_plan();
  const auto read = config::parse_plan(plan_to_toml(plan, "model.safetensors"), "/folder/plan.toml");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->plan, plan) << plan_to_toml(read->plan, "model.safetensors");
  EXPECT_EQ(read->model, "/folder/model.safetensors");
}

// A key that plan.toml has and plan_to_toml() forgets would be a default in the plan read back.
TEST(LocalRun, PlanFileNamesEveryKeyThereIs) {
  const std::string text = "\n" + plan_to_toml(round::unusual_plan(), "m");
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

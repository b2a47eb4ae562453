#include "core/store/plan_json.h"

#include <gtest/gtest.h>

namespace fluvial::store {
namespace {

TEST(PlanJson, RoundTripIsCanonicalAndStrict) {
  round::Plan plan;
  plan.name = "digits";
  plan.worker = {{"lr", 0.1}};
  plan.codec = "topk";
  plan.seed = ~std::uint64_t{0};
  plan.value_abs_max = 0.1;
  plan.optimizer = round::ServerOptimizer::of(round::Optimizer::kFedYogi);
  plan.optimizer.tau = 0.01;
  plan.optimizer.warmup_rounds = 5;
  plan.soft_deadline = round::Milliseconds(1234);
  plan.soft_deadline_min = round::Milliseconds(234);
  plan.adaptive_deadlines = false;
  plan.workers_missing = round::MissingWorkers::kDecline;
  plan.workers_deadline = round::Milliseconds(4321);
  const std::string json = plan_to_json(plan);
  EXPECT_EQ(plan_from_json(json).value(), plan);
  EXPECT_EQ(plan_to_json(plan_from_json(json).value()), json);
  EXPECT_NE(json.find("\"deadlines.soft_ms\":1234"), std::string::npos) << json;
  const auto refusal = [](std::string_view text) {
    const auto parsed = plan_from_json(text);
    return parsed.ok() ? std::string("(read)") : parsed.error().message;
  };
  EXPECT_EQ(refusal(R"({"name":"a"})"), "(read)");
  EXPECT_EQ(refusal(R"({"name":"a","round":1})"), "plan: unknown key 'round'");
  EXPECT_EQ(refusal(R"({"name":"a","name":"b"})"), "plan: the key 'name' appears twice");
  EXPECT_EQ(refusal(R"({"name":"a","rounds":-1})"),
            "plan: rounds: expected a whole number from 0 to 18446744073709551615");
  EXPECT_EQ(refusal(R"({"name":"a","rounds":0})"), "rounds = 0: expected 1 to 1000000000");
  EXPECT_EQ(refusal(R"({"name":"a","sum_digest":1})"), "plan: sum_digest: expected true or false");
  EXPECT_EQ(refusal(R"({"name":"a","workers.missing":"wait"})"), "plan: workers.missing: expected continue or decline");
  EXPECT_EQ(refusal(R"({"name":"a","worker":{"lr":"x"}})"), "plan: worker.lr: expected a number");
  EXPECT_EQ(
      refusal(R"({"name":"a","optimizer.name":"adam"})").find("server optimizer \"adam\": expected one of fedavg, "),
      0u);
  // As journals have it that knew two optimizers.
  const auto old = plan_from_json(
      R"({"name":"a","optimizer.name":"fedavgm","optimizer.learning_rate":0.5,"optimizer.momentum":0.8})");
  EXPECT_EQ(old->optimizer, (round::ServerOptimizer{.kind = round::Optimizer::kFedAvgM, .lr = 0.5, .momentum = 0.8}));
}

TEST(PlanJson, SchemaRoundTrip) {
  const round::Schema model =
      round::Schema::make({{"a", round::DType::kF32, {2, 3}}, {"n", round::DType::kI64, {}}}).value();
  const std::string json = schema_to_json(model);
  EXPECT_EQ(json, R"([{"name":"a","dtype":"F32","shape":[2,3]},{"name":"n","dtype":"I64","shape":[]}])");
  EXPECT_EQ(schema_from_json(json).value(), model);
  EXPECT_FALSE(schema_from_json(R"([{"name":"a","dtype":"F32","shape":[-1]}])").ok());
  EXPECT_FALSE(schema_from_json(R"([{"name":"a","dtype":"F32"}])").ok());
}

}  // namespace
}  // namespace fluvial::store

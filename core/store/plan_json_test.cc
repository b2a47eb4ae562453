#include "core/store/plan_json.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/round/plan_test_support.h"

namespace fluvial::store {
namespace {

TEST(PlanJson, TextIsFixed) {
  round::Plan plan;
  EXPECT_EQ(
      plan_to_json(plan),
      R"({"name":"","rounds":10,"local_steps":1,"codec":"fp32","down":"fp32","chunk_values":1048576,"fraction_bits":40,)"
      R"("value_abs_max":1.024E3,"update_norm_max":0E0,"attempts_max":3,"models_kept":3,)"
      R"("models_kept_best":"","seed":1,"sum_digest":false,)"
      R"("metrics_by_site":true,"late":"residual","staleness_max":1,"staleness_power":5E-1,)"
      R"("mode":"rounds","async.goal":0,"async.lead_max":0,"async.drift_max":2,"async.fairness":"none",)"
      R"("participants.fraction":1E0,"participants.min":1,"participants.quorum":1,)"
      R"("participants.weight_min":1,"deadlines.soft_ms":30000,"deadlines.soft_min_ms":5000,)"
      R"("deadlines.adaptive":true,"deadlines.hard_ms":60000,"optimizer.name":"fedavg:lr=1",)"
      R"("optimizer.learning_rate":1E0,"optimizer.momentum":9E-1,)"
      R"("optimizer.averaged":"*running_mean,*running_var,*moving_mean,*moving_variance,batch_stats*",)"
      R"("residual.norm_max":0E0,)"
      R"("residual.age_max_rounds":0,"workers.missing":"continue","workers.deadline_ms":0,"worker":{}})");
  plan = round::unusual_plan();
  const std::string text =
      R"({"name":"digits","rounds":31,"local_steps":17,"codec":"topk:ratio=0.05",)"
      R"("down":"delta:int8:block=512,rounding=stochastic","chunk_values":4096,)"
      R"("fraction_bits":33,"value_abs_max":1.65E1,"update_norm_max":1E-3,"attempts_max":1000,)"
      R"("models_kept":8,"models_kept_best":"test_accuracy:max","seed":9007199254740993,"sum_digest":true,)"
      R"("metrics_by_site":false,"late":"next","staleness_max":3,"staleness_power":7.5E-1,)"
      R"("mode":"rounds","async.goal":0,"async.lead_max":0,"async.drift_max":2,"async.fairness":"none",)"
      R"("participants.fraction":1E-1,)"
      R"("participants.min":4,"participants.quorum":3,"participants.weight_min":4611686018427387904,)"
      R"("deadlines.soft_ms":7000,"deadlines.soft_min_ms":1500,"deadlines.adaptive":false,)"
      R"("deadlines.hard_ms":90000,)"
      R"("optimizer.name":"lars:lr=0.5,momentum=0.8,weight_decay=0,trust=0.25,scale_to=900",)"
      R"("optimizer.learning_rate":5E-1,"optimizer.momentum":8E-1,)"
      R"("optimizer.averaged":"norm*.mean,*.statistics","residual.norm_max":2.5E0,)"
      R"("residual.age_max_rounds":12,"workers.missing":"decline","workers.deadline_ms":4321,)"
      R"("worker":{"batch":3.2E1,"layers":["conv1","fc"],"lr":1E-1,"nesterov":true,"network":"wide \"resnet\"",)"
      R"("widths":[1.6E1,3.25E1]}})";
  EXPECT_EQ(plan_to_json(plan), text);
  EXPECT_EQ(plan_from_json(text).value(), plan);
  EXPECT_EQ(plan_from_json(R"({"name":"a","seed":18446744073709551615})")->seed, ~std::uint64_t{0});
}

TEST(PlanJson, AsWrittenItHasNoMomentumOfAnOptimizerWithoutOne) {
  round::Plan plan;
  plan.name = "a";
  EXPECT_EQ(plan_as_written(plan).find("momentum"), std::string::npos);
  EXPECT_EQ(plan_from_json(plan_as_written(plan)).value(), plan);
  plan.optimizer = round::ServerOptimizer::of(round::Optimizer::kFedAvgM);
  EXPECT_EQ(plan_as_written(plan), plan_to_json(plan));
}

TEST(PlanJson, KeepsEveryNumberToItsLastBit) {
  round::Plan plan = round::unusual_plan();
  for (const double value : {0.1 + 0.2, 1.0 / 3, 123456789.123456789, 6148914691236517205.0, 1.7976931348623157e308,
                             2.2250738585072014e-308, -9007199254740993.5, 1e-5}) {
    plan.worker.values["x"] = value;
    plan.value_abs_max = 1 + 1.0 / 3;
    EXPECT_EQ(plan_from_json(plan_to_json(plan)).value(), plan) << value;
  }
  EXPECT_EQ(metrics_from_json(R"([1])").ok(), false);
  EXPECT_EQ(metrics_from_json(R"({"a":0.30000000000000004,"b":[]})").ok(), false);
  EXPECT_EQ(metrics_from_json(R"({"a":0.30000000000000004,"b":1,"c":-1.5e-3})").value(),
            (round::Metrics{{"a", 0.1 + 0.2}, {"b", 1}, {"c", -0.0015}}));
  const round::Metrics reported{{"fine", 0.5}, {"inf", 1.7e308}, {"nan", std::nan("")}};
  EXPECT_EQ(metrics_to_json(reported), R"({"fine":5E-1})");
  EXPECT_EQ(reported_to_json(reported), R"({"fine":5E-1,"inf":null,"nan":null})");
  const round::Metrics read = metrics_from_json(reported_to_json(reported)).value();
  EXPECT_EQ(read.size(), 3U) << "who reported what is no number stays known";
  EXPECT_TRUE(std::isnan(read.at("nan")) && std::isnan(read.at("inf")));
}

std::string refusal(std::string_view text) {
  const auto parsed = plan_from_json(text);
  return parsed.ok() ? std::string("(read)") : parsed.error().message;
}
std::string refusal_of(const std::string& key, const std::string& value) {
  return refusal(R"({"name":"a",")" + key + "\":" + value + "}");
}

TEST(PlanJson, StrictOnKeys) {
  EXPECT_EQ(refusal(R"({"name":"a"})"), "(read)");
  EXPECT_EQ(refusal(R"({"name":"a","round":1})"), "plan: unknown key 'round'");
  EXPECT_EQ(refusal(R"({"name":"a","name":"b"})"), "plan: the key 'name' appears twice");
  EXPECT_EQ(refusal(R"([])"), "plan: expected a JSON object");
  EXPECT_EQ(refusal(R"({})"), "name = '': expected 1 to 63 characters");
  EXPECT_EQ(refusal_of(std::string(65, 'k'), "1"), "plan: unknown key '" + std::string(64, 'k') + "'");
}

TEST(PlanJson, RefusesAWrongValueOfEachKind) {
  EXPECT_EQ(refusal(R"({"name":1})"), "plan: name: expected a text");
  const std::string whole = "plan: rounds: expected a whole number from 0 to 18446744073709551615";
  EXPECT_EQ(refusal_of("rounds", "-1"), whole);
  EXPECT_EQ(refusal_of("rounds", "1.5"), whole);
  EXPECT_EQ(refusal_of("rounds", "\"1\""), whole);
  EXPECT_EQ(refusal_of("rounds", "0"), "rounds = 0: expected 1 to 1000000000");
  EXPECT_EQ(refusal_of("fraction_bits", "4294967296"),
            "plan: fraction_bits: expected a whole number from 0 to 4294967295");
  EXPECT_EQ(refusal_of("value_abs_max", "\"1\""), "plan: value_abs_max: expected a number");
  EXPECT_EQ(refusal_of("value_abs_max", "0"), "value_abs_max = 0: expected 0.001 to 1e+09");
  EXPECT_EQ(refusal_of("sum_digest", "1"), "plan: sum_digest: expected true or false");
  EXPECT_EQ(refusal_of("deadlines.soft_ms", "-1"),
            "plan: deadlines.soft_ms: expected a whole number from 0 to 18446744073709551615");
  EXPECT_EQ(refusal_of("deadlines.soft_ms", "1099511627777"), "plan: deadlines.soft_ms: expected at most 2^40 ms");
  EXPECT_EQ(refusal_of("deadlines.soft_ms", "1099511627776"),
            "deadlines.soft_ms = 1099511627776: expected 1 to 86400000");
  EXPECT_EQ(refusal_of("workers.missing", "true"), "plan: workers.missing: expected a text");
  EXPECT_EQ(refusal_of("workers.missing", "\"wait\""), "plan: workers.missing: expected continue or decline");
  EXPECT_EQ(refusal_of("worker", "1"), "plan: worker: expected a table");
  const std::string value =
      "plan: worker.x: expected a number, a text, true or false, a list of 1 to 256 of the first two, or a schedule";
  EXPECT_EQ(refusal_of("worker", R"({"x":null})"), value);
  EXPECT_EQ(refusal_of("worker", R"({"x":[]})"), value);
  EXPECT_EQ(refusal_of("worker", R"({"x":[1,"a"]})"), "plan: worker.x: expected a number");
  EXPECT_EQ(refusal_of("worker", R"({"x":["a",1]})"), "plan: worker.x: expected a text");
  EXPECT_EQ(refusal_of("worker", R"({"x":[true]})"), "plan: worker.x: expected a number");
  EXPECT_EQ(refusal_of("worker", R"({"x":{"start":"a"}})"), "plan: worker.x.start: expected a number");
  EXPECT_EQ(refusal_of("worker", R"({"x":{"strat":1}})"),
            "plan: worker.x.strat: a schedule has schedule, start, end, decay, every, rounds and warmup");
  EXPECT_EQ(refusal_of("worker", R"({"x":{"start":{}}})").find("plan: worker.x.start: expected a number"), 0U);
  EXPECT_EQ(refusal_of("worker", R"({"x":{}})"), "worker.x = {}: expected start, as in {start = 0.1, decay = 0.99}");
  EXPECT_EQ(refusal_of("optimizer.name", "1"), "plan: optimizer.name: expected a text");
  EXPECT_EQ(
      refusal_of("optimizer.name", "\"adam\""),
      "server optimizer \"adam\": expected one of fedavg, fedavgm, fedadagrad, fedadam, fedyogi, nesterov, "
      "delayed_nesterov, lars, lamb, mean, signsgd, onebit_adam, and its options as in fedavgm:lr=1,momentum=0.9");
  EXPECT_EQ(refusal_of("optimizer.momentum", "1"), "optimizer.momentum = 1: expected 0 to below 1");
}

TEST(PlanJson, SchedulesStandAmongTheValues) {
  round::Plan plan;
  plan.name = "a";
  plan.worker = {{{"batch", 32.0}}, round::scheduled_plan().worker.schedules};
  const std::string text = plan_to_json(plan);
  const std::string worker = R"("worker":{"batch":3.2E1,"momentum":{"start":9E-1,"decay":5E-1,"every":1E1},)"
                             R"("rate":{"schedule":"cosine","start":1E-1,"end":1E-3,"rounds":2E1,"warmup":3E0}}})";
  EXPECT_EQ(text.substr(text.find("\"worker\":")), worker);
  EXPECT_EQ(plan_from_json(text).value(), plan);
  EXPECT_EQ(plan_from_json(plan_to_json(round::scheduled_plan())).value(), round::scheduled_plan());
}

TEST(PlanJson, ReadsJournalsThatKnewTwoOptimizers) {
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

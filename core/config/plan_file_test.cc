#include "core/config/plan_file.h"

#include <gtest/gtest.h>

#include <map>

#include "core/round/plan_test_support.h"

namespace fluvial::config {
namespace {

std::string plan_refusal(const std::string& toml) {
  const auto plan = parse_plan(toml, "dir/plan.toml");
  if (plan.ok()) return "(read)";
  EXPECT_EQ(plan.error().message.find('\n'), std::string::npos);
  return plan.error().message;
}

TEST(PlanFile, ReadsEveryKey) {
  const auto file = parse_plan(R"(
name = "digits"
model = "initial.safetensors"
rounds = 31
local_steps = 17
codec = "topk:ratio=0.05"
down = "delta:int8:block=512,rounding=stochastic"
chunk_values = 4096
fraction_bits = 33
value_abs_max = 16.5
update_norm_max = 0.001
attempts_max = 1000
models_kept = 8
models_kept_best = "test_accuracy:max"
seed = 9007199254740993
sum_digest = true
metrics_by_site = false
late = "next"
staleness_max = 3
staleness_power = 0.75
[participants]
fraction = 0.1
min = 4
quorum = 3
weight_min = 4611686018427387904
[deadlines]
soft_ms = "7s"
soft_min_ms = "1500ms"
adaptive = false
hard_ms = 90000
[optimizer]
learning_rate = 0.5
momentum = 0.8
averaged = "norm*.mean,*.statistics"
name = "lars:lr=0.1,momentum=0.25,trust=0.25,scale_to=900"
[residual]
norm_max = 2.5
age_max_rounds = 12
[workers]
missing = "decline"
deadline_ms = "4321ms"
[worker]
lr = 0.1
batch = 32
network = 'wide "resnet"'
nesterov = true
widths = [16, 32.5]
layers = ["conv1", "fc"]
)",
                               "dir/plan.toml");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->plan, round::unusual_plan());
  EXPECT_EQ(file->model, "dir/initial.safetensors");
  EXPECT_EQ(parse_plan("name = 'a'\nmodel = '/m'", "p.toml")->model, "/m");
  EXPECT_EQ(parse_plan("name = 'a'", "p.toml")->model, "");
}

TEST(PlanFile, TextKeepsEveryKey) {
  const std::string text = plan_to_toml({round::scheduled_plan(), "model.safetensors"});
  const auto read = parse_plan(text, "/folder/plan.toml");
  ASSERT_TRUE(read.ok()) << read.error().message << '\n' << text;
  EXPECT_EQ(read->plan, round::scheduled_plan()) << text;
  EXPECT_EQ(read->model, "/folder/model.safetensors");
}

TEST(PlanFile, EveryKeyHasItsDefaultAndUnit) {
  std::map<std::string, std::string> keys;
  for (const auto& key : describe_plan()) {
    EXPECT_FALSE(key.help.empty()) << key.key;
    keys[key.key] = key.default_value + " | " + key.unit;
  }
  EXPECT_EQ(keys,
            (std::map<std::string, std::string>{
                {"async.drift_max", "2 | count"},
                {"async.fairness", "none | text"},
                {"async.goal", "0 | count"},
                {"async.lead_max", "0 | count"},
                {"attempts_max", "3 | count"},
                {"chunk_values", "1048576 | count"},
                {"codec", "fp32 | text"},
                {"deadlines.adaptive", "true | true or false"},
                {"deadlines.hard_ms", "60000 | ms"},
                {"deadlines.soft_min_ms", "5000 | ms"},
                {"deadlines.soft_ms", "30000 | ms"},
                {"down", "fp32 | text"},
                {"fraction_bits", "40 | count"},
                {"late", "residual | text"},
                {"local_steps", "1 | count"},
                {"metrics_by_site", "true | true or false"},
                {"mode", "rounds | text"},
                {"model", " | path"},
                {"models_kept", "3 | count"},
                {"models_kept_best", " | text"},
                {"name", "(required) | text"},
                {"optimizer.averaged", "*running_mean,*running_var,*moving_mean,*moving_variance,batch_stats* | text"},
                {"optimizer.learning_rate", "1 | factor"},
                {"optimizer.momentum", "0.9 | factor"},
                {"optimizer.name", "fedavg | text"},
                {"participants.fraction", "1 | fraction"},
                {"participants.min", "1 | count"},
                {"participants.quorum", "1 | count"},
                {"participants.weight_min", "1 | count"},
                {"residual.age_max_rounds", "0 | count"},
                {"residual.norm_max", "0 | 2-norm"},
                {"rounds", "10 | count"},
                {"seed", "1 | count"},
                {"staleness_max", "1 | count"},
                {"staleness_power", "0.5 | power"},
                {"sum_digest", "false | true or false"},
                {"update_norm_max", "0 | 2-norm"},
                {"value_abs_max", "1024 | value"},
                {"worker.*", " | value"},
                {"workers.deadline_ms", "0 | ms"},
                {"workers.missing", "continue | text"},
            }));
}

std::string refusal_of(const std::string& line) { return plan_refusal("name = 'a'\n" + line); }

// Wherever it stands: other keys change what it sets.
TEST(PlanFile, AModeHasDefaults) {
  const auto plan = [](const std::string& text) { return parse_plan("name = \"t\"\n" + text, "p.toml"); };
  const auto windows = plan("mode = \"async\"\n");
  ASSERT_TRUE(windows.ok()) << windows.error().message;
  EXPECT_EQ(windows->plan.late, "next");
  EXPECT_EQ(windows->plan.staleness_max, 10u);
  const auto before = plan("staleness_max = 3\nmode = \"async\"\n");
  ASSERT_TRUE(before.ok());
  EXPECT_EQ(before->plan.staleness_max, 3u);
  const auto residual = plan("mode = \"async\"\nlate = \"residual\"\n");
  ASSERT_FALSE(residual.ok());
  EXPECT_EQ(residual.error().message, "p.toml:3: late = 'residual': expected next, where mode = async");
}

TEST(PlanFile, FairnessIsByRateOrNone) {
  const auto plan = [](const std::string& text) { return parse_plan("name = \"t\"\n" + text, "p.toml"); };
  const auto fair = plan("mode = \"async\"\nasync.fairness = \"rate\"\n");
  ASSERT_TRUE(fair.ok()) << fair.error().message;
  EXPECT_TRUE(round::is_fair(fair->plan));
  const auto rounds = plan("async.fairness = \"rate\"\n");
  ASSERT_TRUE(rounds.ok());
  EXPECT_FALSE(round::is_fair(rounds->plan)) << "it is a key of windows";
  EXPECT_EQ(refusal_of("async.fairness = 'speed'"), "dir/plan.toml:2: async.fairness = 'speed': expected none or rate");
  const auto scaled = plan("mode = \"async\"\nasync.fairness = \"rate\"\noptimizer.name = \"fedavg:scale_to=1000\"\n");
  ASSERT_FALSE(scaled.ok());
  EXPECT_NE(scaled.error().message.find("scale_to"), std::string::npos) << scaled.error().message;
}

TEST(PlanFile, RefusesAWrongValueOfEachKind) {
  const std::string at = "dir/plan.toml:2: ";
  EXPECT_EQ(refusal_of("codec = '" + std::string(1'025, 'c') + "'"),
            at + "codec = '" + std::string(80, 'c') + "': expected at most 1024 characters");
  EXPECT_EQ(refusal_of(R"(codec = "a\u0001")"), at + "codec = 'a ': expected no control characters");
  EXPECT_EQ(refusal_of(R"(model = "a\u0001")"), at + "model = 'a ': expected no control characters");
  EXPECT_EQ(refusal_of("rounds = 1.5"), at + "rounds = '1.5': expected a whole number");
  EXPECT_EQ(refusal_of("rounds = ''"), at + "rounds = '': expected a whole number");
  EXPECT_EQ(refusal_of("seed = '18446744073709551615'"), "(read)");  // beyond TOML's integers
  EXPECT_EQ(refusal_of("seed = '18446744073709551616'"), at + "seed = '18446744073709551616': expected a whole number");
  EXPECT_EQ(refusal_of("fraction_bits = -1"), at + "fraction_bits = '-1': expected a whole number");
  EXPECT_EQ(refusal_of("fraction_bits = 4294967296"), at + "fraction_bits = '4294967296': expected 0 to 4294967295");
  EXPECT_EQ(refusal_of("fraction_bits = 4294967295"), at + "fraction_bits = 4294967295: expected 8 to 60");
  EXPECT_EQ(refusal_of("value_abs_max = 'x'"), at + "value_abs_max = 'x': expected a number");
  EXPECT_EQ(refusal_of("value_abs_max = ''"), at + "value_abs_max = '': expected a number");
  EXPECT_EQ(refusal_of("sum_digest = 1"), at + "sum_digest = '1': expected true or false");
  EXPECT_EQ(refusal_of("workers.deadline_ms = 'x'"),
            at + "workers.deadline_ms = 'x': expected a duration such as 500ms, 30s, 10m or 2h, or a number of ms");
  EXPECT_EQ(refusal_of("workers.deadline_ms = 1099511627777"),
            at + "workers.deadline_ms = '1099511627777': expected at most a day");
  EXPECT_EQ(refusal_of("workers.deadline_ms = 1099511627776"),
            at + "workers.deadline_ms = 1099511627776: expected 0 to 86400000");
  EXPECT_EQ(refusal_of("rounds = [1]"), at + "rounds = '1': expected a single text, number, true or false");
  EXPECT_EQ(refusal_of("worker.lr = inf"), at + "worker.lr = inf: expected a finite number");
  EXPECT_EQ(refusal_of("worker.lr = [true]"), at + "worker.lr = 'true': expected a list of numbers or of texts");
  EXPECT_EQ(refusal_of("worker.lr = []"), at + "worker.lr: expected a text, number, true or false, or a list of such");
  EXPECT_EQ(refusal_of("worker.lr = 1979-05-27"),
            at + "worker.lr: expected a text, number, true or false, or a list of such");
  EXPECT_EQ(refusal_of("worker = 1"), at + "unknown key 'worker'");
  EXPECT_EQ(refusal_of("async = 3"),
            at + "async = '3': expected a table, [async], of goal, lead_max, drift_max, fairness");
  EXPECT_EQ(refusal_of("deadlines = 1"),
            at + "deadlines = '1': expected a table, [deadlines], of soft_ms, soft_min_ms, adaptive, hard_ms");
}

TEST(PlanFile, RefusesWithFileLineKeyAndExpectation) {
  const std::string head = "name = 'a'\n";
  EXPECT_EQ(plan_refusal(head), "(read)");
  EXPECT_EQ(plan_refusal("rounds = 1"), "dir/plan.toml: name is missing");
  EXPECT_EQ(plan_refusal(head + "round = 1"), "dir/plan.toml:2: unknown key 'round': did you mean 'rounds'?");
  EXPECT_EQ(plan_refusal(head + "[deadlines]\nsoft = 1"),
            "dir/plan.toml:3: unknown key 'deadlines.soft': did you mean 'deadlines.soft_ms'?");
  EXPECT_EQ(plan_refusal(head + "rounds = 0"), "dir/plan.toml:2: rounds = 0: expected 1 to 1000000000");
  EXPECT_EQ(plan_refusal(head + "rounds = -3"), "dir/plan.toml:2: rounds = '-3': expected a whole number");
  EXPECT_EQ(plan_refusal(head + "value_abs_max = nan").find("dir/plan.toml:2: value_abs_max = "), 0u);
  EXPECT_EQ(plan_refusal(head + "[optimizer]\nname = 'adam'"),
            "dir/plan.toml:3: optimizer.name = 'adam': server optimizer \"adam\": expected one of fedavg, fedavgm, "
            "fedadagrad, fedadam, fedyogi, nesterov, delayed_nesterov, lars, lamb, mean, signsgd, onebit_adam, and its "
            "options as in "
            "fedavgm:lr=1,momentum=0.9");
  EXPECT_EQ(plan_refusal(head + "[optimizer]\nlearning_rate = 0\nname = 'fedadam'"),
            "dir/plan.toml:3: optimizer.learning_rate = 0: expected 1e-12 to 1e+06");
  EXPECT_EQ(plan_refusal(head + "[workers]\nmissing = 'wait'"),
            "dir/plan.toml:3: workers.missing = 'wait': expected continue or decline");
  EXPECT_EQ(plan_refusal(head + "[worker]\nlr = {start = 'high'}"),
            "dir/plan.toml:3: worker.lr.start = 'high': expected a number");
  EXPECT_EQ(plan_refusal(head + "[worker]\nlr = {start = [1, 2]}"),
            "dir/plan.toml:3: worker.lr.start = '1': expected a number or a text, as a part of a schedule");
  EXPECT_EQ(plan_refusal(head + "[worker]\nlr = {strat = 1}"),
            "dir/plan.toml:3: worker.lr.strat = '1': expected a part of a schedule; did you mean 'start'?");
  EXPECT_EQ(
      plan_refusal(head + "[worker.sub]\nx = 1"),
      "dir/plan.toml:3: worker.sub.x = '1': expected a part of a schedule (start, end, decay, ...), the only table "
      "within [worker]: give the value a key of its own, worker.sub_x");
  EXPECT_EQ(
      plan_refusal(head + "[worker]\nsub = {layers = [1, 2]}"),
      "dir/plan.toml:3: worker.sub.layers = '1': expected a part of a schedule (start, end, decay, ...), the only "
      "table within [worker]: give the value a key of its own, worker.sub_layers");
  EXPECT_EQ(plan_refusal(head + "[worker]\nsub = {}"),
            "dir/plan.toml:3: worker.sub: expected a value, not an empty table");
  EXPECT_EQ(plan_refusal(head + "[worker.lr]\nstart = 1\nend = 0\nwarmup = 10"),
            "dir/plan.toml:5: worker.lr.warmup = 10: expected less than the 10 rounds of the schedule");
  EXPECT_EQ(plan_refusal(head + "[worker.lr]\nschedule = 'sine'\nstart = 1"),
            "dir/plan.toml:3: worker.lr.schedule = 'sine': expected constant, linear, cosine or decay");
  EXPECT_EQ(plan_refusal(head + "[worker.lr]\ndecay = 0.9"),
            "dir/plan.toml:3: worker.lr.decay = 0.9: expected beside it start, as in {start = 0.1, decay = 0.99}");
  EXPECT_EQ(plan_refusal(head + "name = 'b'").find("dir/plan.toml:2: not TOML: "), 0u);
  EXPECT_EQ(plan_refusal(head + "[deadlines]\nsoft_ms = '100s'"),
            "dir/plan.toml:3: deadlines.hard_ms = 60000: expected at least deadlines.soft_ms = '100s'");
  EXPECT_EQ(plan_refusal(head + "[deadlines]\nsoft_ms = '20s'\nhard_ms = '10s'"),
            "dir/plan.toml:4: deadlines.hard_ms = '10s': expected at least deadlines.soft_ms = '20s'");
  EXPECT_EQ(load_plan("/none/plan.toml").error().message, "/none/plan.toml: cannot be read");
}

TEST(PlanFile, ARefusalIsOneShortLineWhateverTheFileHolds) {
  const std::string head = "name = 'a'\n";
  EXPECT_EQ(plan_refusal(head + "\"ro\\nunds\" = 1"), "dir/plan.toml:2: unknown key 'ro unds': did you mean 'rounds'?");
  EXPECT_EQ(plan_refusal(head + "rounds = \"1\\n\\u001b[2J\""),
            "dir/plan.toml:2: rounds = '1  [2J': expected a whole number");
  EXPECT_LT(plan_refusal(head + "rounds = '" + std::string(5'000, 'x') + "'").size(), 200U);
}

TEST(PlanFile, AMomentumNeedsAnOptimizerThatHasOne) {
  const auto momentum = [](const std::string& optimizer) {
    return plan_refusal("name = 'a'\n[optimizer]\nmomentum = 0.9\nname = '" + optimizer + "'");
  };
  EXPECT_EQ(momentum("fedavg"),
            "dir/plan.toml:3: optimizer.momentum = 0.9: expected none with optimizer fedavg; fedavgm, nesterov, "
            "delayed_nesterov and lars have one");
  for (const char* optimizer : {"fedadagrad", "fedadam", "fedyogi", "lamb", "mean", "signsgd", "onebit_adam"}) {
    EXPECT_NE(momentum(optimizer).find("expected none with optimizer"), std::string::npos) << optimizer;
  }
  for (const char* optimizer : {"fedavgm", "nesterov", "delayed_nesterov", "lars"}) {
    EXPECT_EQ(momentum(optimizer), "(read)") << optimizer;
  }
  EXPECT_EQ(plan_refusal("name = 'a'\n[optimizer]\nmomentum = 0.9").find("dir/plan.toml:3: optimizer.momentum"), 0U);
  round::Plan plan;  // fedavg
  plan.name = "a";
  EXPECT_EQ(parse_plan(plan_to_toml({plan, ""}), "p.toml")->plan, plan);
}

TEST(PlanFile, AScheduleIsATableOfItsOwn) {
  const round::Schedule decay{.start = 0.1, .decay = 0.5, .every = 10};
  for (const std::string text : {"[worker]\nrate = {start = 0.1, decay = 0.5, every = 10}",
                                 "[worker.rate]\nstart = 0.1\ndecay = 0.5\nevery = 10",
                                 "worker.rate.start = 0.1\nworker.rate.decay = 0.5\nworker.rate.every = 10"}) {
    const auto file = parse_plan("name = 'a'\n" + text, "p.toml");
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(file->plan.worker, (round::WorkerTable{{}, {{"rate", decay}}}));
  }
}

TEST(PlanFile, TextsMayNeedEscapes) {
  round::Plan plan;
  plan.name = "the \"second\" \\ trial";
  const auto file = parse_plan(plan_to_toml({plan, "/models\\a \"b\".safetensors"}), "p.toml");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->plan, plan);
  EXPECT_EQ(file->model, "/models\\a \"b\".safetensors");
}

// TOML's integers end at 2^63 - 1.
TEST(PlanFile, NumbersMayBeBeyondIntegers) {
  round::Plan plan;
  plan.name = "a";
  plan.seed = 18'446'744'073'709'551'615U;
  plan.worker = {
      {{"rate", 11'111'111'111'111'111'116.5}, {"rates", std::vector<double>{1, -11'111'111'111'111'111'116.5}}},
      {{"lr", {.start = 11'111'111'111'111'111'116.5}}}};
  const auto file = parse_plan(plan_to_toml({plan, ""}), "p.toml");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->plan, plan);
}

TEST(PlanFile, NamesForWorkersMayNeedQuotes) {
  round::Plan plan;
  plan.name = "a";
  plan.worker = {{{"a.b", 1.0}, {"a\"b\\", "\\\""}, {"c\x01", 2.0}}, {{"d e", {.start = 1}}}};
  const auto file = parse_plan(plan_to_toml({plan, ""}), "p.toml");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->plan.worker, plan.worker);
}

TEST(PlanFile, AKeyStandsOnce) {
  EXPECT_EQ(plan_refusal("name = 'a'\n\"deadlines.soft_ms\" = 5\n[deadlines]\nsoft_ms = 6"),
            "dir/plan.toml:4: deadlines.soft_ms stands twice");
}

TEST(PlanFile, WhatACallerChecksIsToldWithItsLine) {
  const PlanCheck no_codec = [](const round::Plan& plan) -> Status {
    return Error{Code::kInvalidArgument, "codec = '" + plan.codec + "': no such codec"};
  };
  EXPECT_EQ(parse_plan("name = 'a'\nrounds = 3\ncodec = 'int9'", "p.toml", no_codec).error().message,
            "p.toml:3: codec = 'int9': no such codec");
}

// Fewer could commit nothing.
TEST(PlanFile, ARoundWaitsForAsManySitesAsItNeeds) {
  EXPECT_EQ(parse_plan("name = 'a'\nparticipants.quorum = 3", "p.toml")->plan.participants_min, 3U);
  EXPECT_FALSE(parse_plan("name = 'a'\nparticipants.quorum = 3", "p.toml")->names_participants_min);
  const auto named = parse_plan("name = 'a'\nparticipants.quorum = 3\nparticipants.min = 1", "p.toml");
  EXPECT_EQ(named->plan.participants_min, 1U);
  EXPECT_TRUE(named->names_participants_min);
}

}  // namespace
}  // namespace fluvial::config

#include "core/round/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/printable.h"

namespace fluvial::round {
namespace {

using ::testing::HasSubstr;

TEST(ServerOptimizerText, RoundTrips) {
  EXPECT_EQ(to_string(parse_server_optimizer("fedavg").value()), "fedavg:lr=1");
  EXPECT_EQ(to_string(parse_server_optimizer("fedavgm:momentum=0.5,lr=0.25").value()), "fedavgm:lr=0.25,momentum=0.5");
  EXPECT_EQ(to_string(parse_server_optimizer("fedadam").value()), "fedadam:lr=0.01,beta1=0.9,beta2=0.99,tau=0.001");
  EXPECT_EQ(to_string(parse_server_optimizer("nesterov:warmup=5,scale_to=100").value()),
            "nesterov:lr=0.7,momentum=0.9,warmup=5,scale_to=100");
  EXPECT_EQ(to_string(parse_server_optimizer("lamb").value()),
            "lamb:lr=0.01,beta1=0.9,beta2=0.999,tau=1e-06,weight_decay=0,trust=1");
  EXPECT_EQ(to_string(parse_server_optimizer("delayed_nesterov:every=1000000,c=0.000001").value()),
            "delayed_nesterov:lr=0.7,momentum=0.9,every=1000000,c=1e-06");
  for (const char* text :
       {"fedavg:lr=0.125", "fedavgm", "fedavgm:lr=2,momentum=0", "fedadagrad:tau=0.5",
        "fedadam:lr=0.1,beta1=0,beta2=0.9", "fedyogi:warmup=12", "nesterov", "lars:trust=0.02,weight_decay=0.0001",
        "lamb:tau=1e-8,scale_to=64", "mean", "delayed_nesterov:every=49,c=0.02,warmup=3"}) {
    const ServerOptimizer optimizer = parse_server_optimizer(text).value();
    EXPECT_EQ(parse_server_optimizer(to_string(optimizer)).value(), optimizer);
  }
}

TEST(ServerOptimizerText, DefaultsAreFixed) {
  const std::pair<Optimizer, const char*> cases[] = {
      {Optimizer::kFedAvg, "fedavg:lr=1"},
      {Optimizer::kFedAvgM, "fedavgm:lr=1,momentum=0.9"},
      {Optimizer::kFedAdagrad, "fedadagrad:lr=0.01,beta1=0.9,tau=0.001"},
      {Optimizer::kFedAdam, "fedadam:lr=0.01,beta1=0.9,beta2=0.99,tau=0.001"},
      {Optimizer::kFedYogi, "fedyogi:lr=0.01,beta1=0.9,beta2=0.99,tau=0.001"},
      {Optimizer::kNesterov, "nesterov:lr=0.7,momentum=0.9"},
      {Optimizer::kDelayedNesterov, "delayed_nesterov:lr=0.7,momentum=0.9,every=4,c=0"},
      {Optimizer::kSignSgd, "signsgd:lr=0.01"},
      {Optimizer::kLars, "lars:lr=1,momentum=0.9,weight_decay=0,trust=0.001"},
      {Optimizer::kLamb, "lamb:lr=0.01,beta1=0.9,beta2=0.999,tau=1e-06,weight_decay=0,trust=1"},
      {Optimizer::kMean, "mean"},
      {Optimizer::kOnebitAdam, "onebit_adam:lr=0.01,beta2=0.999,tau=0.001"},
  };
  for (const auto& [kind, text] : cases) EXPECT_EQ(to_string(ServerOptimizer::of(kind)), text);
  // What a kind does not have stays as it is in every other: plans are compared whole.
  const ServerOptimizer adam = ServerOptimizer::of(Optimizer::kFedAdam);
  EXPECT_EQ(adam, (ServerOptimizer{.kind = Optimizer::kFedAdam, .lr = 0.01}));
  EXPECT_EQ(ServerOptimizer::of(Optimizer::kFedAdagrad),
            (ServerOptimizer{.kind = Optimizer::kFedAdagrad, .lr = 0.01, .beta2 = 0.99}));
  EXPECT_EQ(ServerOptimizer::of(Optimizer::kDelayedNesterov),
            (ServerOptimizer{.kind = Optimizer::kDelayedNesterov, .lr = 0.7}));
  EXPECT_EQ(ServerOptimizer::of(Optimizer::kLars), (ServerOptimizer{.kind = Optimizer::kLars, .trust = 1e-3}));
}

TEST(ServerOptimizerText, RangesAreChecked) {
  const auto refusal = [](const ServerOptimizer& optimizer) {
    return check_server_optimizer(optimizer).error().message;
  };
  EXPECT_EQ(refusal({.lr = 2e6}), "optimizer.learning_rate = 2e+06: expected 1e-12 to 1e+06");
  EXPECT_EQ(refusal({.momentum = 1}), "optimizer.momentum = 1: expected 0 to below 1");  // though fedavg has none
  EXPECT_EQ(refusal({.beta1 = -0.5}), "optimizer.beta1 = -0.5: expected 0 to below 1");
  EXPECT_EQ(refusal({.beta2 = 1}), "optimizer.beta2 = 1: expected 0 to below 1");
  EXPECT_EQ(refusal({.tau = 1e4}), "optimizer.tau = 10000: expected 1e-12 to 1000");
  EXPECT_EQ(refusal({.weight_decay = 1.5}), "optimizer.weight_decay = 1.5: expected 0 to 1");
  EXPECT_EQ(refusal({.trust = 0}), "optimizer.trust = 0: expected 1e-09 to 1e+06");
  EXPECT_EQ(refusal({.every = 0}), "optimizer.every = 0: expected 1 to 1e+06");
  EXPECT_EQ(refusal({.every = 2'000'000}), "optimizer.every = 2e+06: expected 1 to 1e+06");
  EXPECT_EQ(refusal({.c = -0.1}), "optimizer.c = -0.1: expected 0 to 1");
  EXPECT_EQ(refusal({.every = 8, .c = 0.25}), "optimizer.c = 0.25: expected at most 0.125, which is 1 / every");
  EXPECT_TRUE(check_server_optimizer({.every = 8, .c = 0.125}).ok());
  EXPECT_TRUE(check_server_optimizer({.every = 1, .c = 1}).ok());
  EXPECT_EQ(refusal({.warmup_rounds = 1'000'000'001, .scale_to = 7}),
            "optimizer.name = warmup 1000000001 and scale_to 7: expected at most 1000000000 rounds and a weight of "
            "9007199254740992");
  EXPECT_EQ(refusal({.kind = Optimizer::kMean, .lr = 0.5}),
            "optimizer.learning_rate = 0.5: expected none with optimizer mean, whose next model is the mean itself");
}

TEST(ServerOptimizerText, EveryNameHasItsDefaults) {
  for (int kind = 0; kind <= static_cast<int>(Optimizer::kMean); ++kind) {
    const auto defaults = ServerOptimizer::of(static_cast<Optimizer>(kind));
    EXPECT_EQ(parse_server_optimizer(optimizer_name(defaults.kind)).value(), defaults);
    EXPECT_TRUE(check_server_optimizer(defaults).ok());
  }
}

TEST(ServerOptimizerText, RefusalsSayWhatWasExpected) {
  const std::pair<const char*, const char*> cases[] = {
      {"adam",
       "one of fedavg, fedavgm, fedadagrad, fedadam, fedyogi, nesterov, delayed_nesterov, lars, lamb, mean, signsgd"},
      {"", "one of fedavg"},
      {"fedavg:", "expected lr=NUMBER, warmup"},
      {"fedavg:momentum=0.9", "option \"momentum=0.9\": expected lr=NUMBER, warmup=ROUNDS or scale_to=WEIGHT"},
      {"fedadam:momentum=0.9", "expected lr=NUMBER, beta1=NUMBER, beta2=NUMBER, tau=NUMBER, "},
      {"fedadagrad:beta2=0.9", "expected lr=NUMBER, beta1=NUMBER, tau=NUMBER, "},
      {"fedavg:lr=x", "lr to be a number"},
      {"fedavg:lr", "expected lr=NUMBER"},
      {"fedavg:lr=0", "optimizer.learning_rate = 0: expected 1e-12"},
      {"fedavg:lr=inf", "optimizer.learning_rate = inf"},
      {"fedavgm:lr=1,", "expected lr=NUMBER"},
      {"fedavgm:momentum=1", "optimizer.momentum = 1: expected 0 to below 1"},
      {"fedavgm:momentum=nan", "0 to below 1"},
      {"fedyogi:beta2=1", "optimizer.beta2 = 1: expected 0 to below 1"},
      {"fedadam:tau=0", "optimizer.tau = 0"},
      {"fedavg:warmup=-1", "warmup to be a whole number"},
      {"fedavg:warmup=1.5", "warmup to be a whole number"},
      {"fedavg:warmup=9999999999", "at most 1000000000 rounds"},
      {"mean:lr=0.5", "option \"lr=0.5\": expected no options: the next model is the mean itself"},
      {"mean:warmup=5", "expected no options"},
      {"delayed_nesterov:beta1=0.9", "expected lr=NUMBER, momentum=NUMBER, every=COUNT, c=NUMBER, warmup=ROUNDS"},
      {"delayed_nesterov:every=2.5", "option \"every=2.5\": expected every to be a whole number"},
      {"delayed_nesterov:every=-1", "every to be a whole number"},
      {"delayed_nesterov:every=1e3", "every to be a whole number"},
      {"delayed_nesterov:every", "expected lr=NUMBER"},
      {"delayed_nesterov:every=0", "optimizer.every = 0: expected 1 to 1e+06"},
      {"delayed_nesterov:c=nan", "optimizer.c = nan: expected 0 to 1"},
      {"delayed_nesterov:c=0.3", "optimizer.c = 0.3: expected at most 0.25, which is 1 / every"},
      {"nesterov:every=4", "expected lr=NUMBER, momentum=NUMBER, warmup"},
      {"lars:weight_decay=2", "optimizer.weight_decay = 2: expected 0 to 1"},
  };
  EXPECT_THAT(parse_server_optimizer("fedavg:" + std::string(1'000, 'x')).error().message, HasSubstr("at most 512"));
  for (const auto& [text, message] : cases) {
    const auto optimizer = parse_server_optimizer(text);
    ASSERT_FALSE(optimizer.ok()) << text;
    EXPECT_EQ(optimizer.error().code, Code::kInvalidArgument);
    EXPECT_THAT(optimizer.error().message, HasSubstr(message)) << text;
  }
}

TEST(ServerOptimizerText, RefusalsAreOneShortLine) {
  const std::string texts[] = {"fed\nadam", "\t", "fedadam:l\nr<0.02", "fedadam:" + std::string(500, 'x')};
  for (const std::string& text : texts) {
    const auto refused = parse_server_optimizer(text);
    ASSERT_FALSE(refused.ok());
    EXPECT_TRUE(is_printable(refused.error().message)) << refused.error().message;
    EXPECT_LT(refused.error().message.size(), 800U);
  }
}

TEST(LearningRate, WarmsUpAndScalesWithTheWeight) {
  const ServerOptimizer plain{.lr = 0.5};
  EXPECT_EQ(learning_rate(plain, 1, 7), 0.5);
  const ServerOptimizer warming{.lr = 0.5, .warmup_rounds = 4};
  const double expected[] = {0.125, 0.25, 0.375, 0.5, 0.5};
  for (std::uint64_t round = 1; round <= 5; ++round) EXPECT_EQ(learning_rate(warming, round, 7), expected[round - 1]);
  const ServerOptimizer scaled{.lr = 0.5, .scale_to = 100};
  EXPECT_EQ(learning_rate(scaled, 1, 100), 0.5);
  EXPECT_EQ(learning_rate(scaled, 1, 400), 2.0);
  EXPECT_EQ(learning_rate(scaled, 9, 25), 0.125);
  const ServerOptimizer both{.lr = 0.5, .warmup_rounds = 4, .scale_to = 100};
  EXPECT_EQ(learning_rate(both, 1, 400), 0.5);
  EXPECT_EQ(learning_rate(both, 4, 400), 2.0);
}

TEST(ServerOptimizer, StatisticsAreTensorsThatAPatternOfThePlanFits) {
  ServerOptimizer optimizer = ServerOptimizer::of(Optimizer::kFedAdam);
  for (const char* name : {"bn1.running_mean", "layer1.0.bn1.running_var", "norm/moving_mean", "bn.moving_variance",
                           "batch_stats.BatchNorm_0.mean"}) {
    EXPECT_TRUE(is_statistic(optimizer, name)) << name;
  }
  EXPECT_FALSE(is_statistic(optimizer, "bn1.weight"));
  optimizer.averaged = " ema.*, head.scale ";
  EXPECT_TRUE(is_statistic(optimizer, "ema.fc.weight"));
  EXPECT_TRUE(is_statistic(optimizer, "head.scale"));
  EXPECT_FALSE(is_statistic(optimizer, "bn1.running_mean"));
  optimizer.averaged = "!control/*, momentum.*";
  EXPECT_TRUE(is_statistic(optimizer, "fc.weight")) << "every other one";
  EXPECT_FALSE(is_statistic(optimizer, "control/fc.weight"));
  EXPECT_FALSE(is_statistic(optimizer, "momentum.fc"));
  optimizer.averaged = "none";
  EXPECT_FALSE(is_statistic(optimizer, "none")) << "a word, and no pattern";
  for (const Optimizer kind : {Optimizer::kMean, Optimizer::kOnebitAdam}) {
    EXPECT_FALSE(is_statistic(ServerOptimizer::of(kind), "bn1.running_mean"));
  }
}

TEST(ServerOptimizer, PatternsThatCannotBeMeant) {
  const auto refusal_of = [](Optimizer kind, std::string averaged) {
    ServerOptimizer optimizer = ServerOptimizer::of(kind);
    optimizer.averaged = std::move(averaged);
    const Status checked = check_server_optimizer(optimizer);
    return checked.ok() ? "" : checked.error().message;
  };
  EXPECT_EQ(refusal_of(Optimizer::kFedAvgM, "*running_var, ema*"), "");
  EXPECT_EQ(refusal_of(Optimizer::kMean, "none"), "");
  const std::string expected = "expected 1 to 32 patterns of tensors' names";
  EXPECT_THAT(refusal_of(Optimizer::kFedAvgM, ""), HasSubstr("optimizer.averaged = '': " + expected));
  EXPECT_THAT(refusal_of(Optimizer::kFedAvgM, "!"), HasSubstr(expected));
  EXPECT_THAT(refusal_of(Optimizer::kFedAvgM, "a,,b"), HasSubstr(expected));
  EXPECT_THAT(refusal_of(Optimizer::kFedAvgM, "a,b\n"), HasSubstr(expected));
  EXPECT_THAT(refusal_of(Optimizer::kFedAvgM, std::string(513, 'a')), HasSubstr(expected));
  std::string many = "a";
  for (int i = 0; i < 32; ++i) many += ",a";
  EXPECT_THAT(refusal_of(Optimizer::kFedAvgM, many), HasSubstr(expected));
  EXPECT_THAT(refusal_of(Optimizer::kMean, "ema*"), HasSubstr("optimizer mean, which averages every tensor"));
  EXPECT_THAT(refusal_of(Optimizer::kOnebitAdam, "ema*"), HasSubstr("optimizer onebit_adam, which steps every tensor"));
}

}  // namespace
}  // namespace fluvial::round

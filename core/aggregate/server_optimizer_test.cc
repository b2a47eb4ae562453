#include "core/aggregate/server_optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/reference/optimizer.h"
#include "kernels/test_values.h"

namespace fluvial::aggregate {
namespace {

using round::Optimizer;
using ::testing::HasSubstr;
namespace reference = kernels::reference;
namespace test_values = kernels::test_values;

constexpr const char* kTexts[] = {"fedavg:lr=0.3",
                                  "fedavgm:lr=0.7,momentum=0.9",
                                  "fedadagrad:lr=0.1",
                                  "fedadam:lr=0.05",
                                  "fedyogi:lr=0.05",
                                  "nesterov",
                                  "lars:weight_decay=0.01,trust=0.02",
                                  "lamb:weight_decay=0.01",
                                  "mean",
                                  "delayed_nesterov:every=3,c=0.2",
                                  "signsgd:lr=0.02"};

// A matrix, a bias, a tensor without values and another matrix.
round::Schema some_schema() {
  return round::Schema::make({{"a", round::DType::kF32, {30, 41}},
                              {"counter", round::DType::kI64, {3}},
                              {"bias", round::DType::kF32, {77}},
                              {"none", round::DType::kF32, {0, 5}},
                              {"scalar", round::DType::kF32, {}},
                              {"b", round::DType::kF32, {10, 7, 10}}})
      .value();
}

// A run of steps over a model in chunks of `chunk_values`.
class Steps {
 public:
  Steps(std::string_view text, std::vector<float> initial, std::uint64_t chunk_values, std::vector<Layer> layers)
      : optimizer(round::parse_server_optimizer(text).value()),
        layout{.value_count = initial.size(), .chunk_values = chunk_values},
        layers_(std::move(layers)),
        model(std::move(initial)),
        state(initial_state(optimizer, model.size())) {}
  Steps(std::string_view text, std::vector<float> initial)
      : Steps(text, initial, 1'000'000, {{.offset_values = 0, .count = initial.size()}}) {}

  void take(const std::vector<float>& mean, std::uint64_t weight = 1) {
    ServerStep step(optimizer, layout, layers_, ++round, weight);
    const std::size_t chunks = layout.chunk_count();
    if (step.has_norms()) {
      for (std::size_t i = chunks; i-- > 0;) {  // the order of the calls does not matter
        ASSERT_TRUE(step.measure(i, layout.of(std::span(mean), i), state, layout.of(std::span(model), i)).ok());
      }
      step.close();
    }
    for (std::size_t i = chunks; i-- > 0;) {
      ASSERT_TRUE(step.apply(i, layout.of(std::span(mean), i), state, layout.of(std::span(model), i)).ok());
    }
  }

  ServerOptimizer optimizer;
  kernels::ChunkLayout layout;

 private:
  std::vector<Layer> layers_;

 public:
  std::vector<float> model;
  std::vector<float> state;
  std::uint64_t round = 0;
};

std::vector<double> widened(std::span<const float> values) { return {values.begin(), values.end()}; }

double distance(std::span<const float> a, std::span<const float> b) {
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    squares += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
  return std::sqrt(squares);
}

TEST(ServerStep, FollowsTheFp64OracleForManyRounds) {
  const round::Schema schema = some_schema();
  const std::vector<Layer> layers = layers_of(schema, {});
  std::vector<reference::Layer> oracle_layers;
  for (const Layer& layer : layers) oracle_layers.push_back({layer.offset_values, layer.count, layer.scaled});
  for (const char* text : kTexts) {
    Steps steps(text, test_values::normals(schema.value_count(), 1), 256, layers);
    const ServerOptimizer& o = steps.optimizer;
    const reference::OptimizerOptions options{.lr = o.lr,
                                              .momentum = o.momentum,
                                              .beta1 = o.beta1,
                                              .beta2 = o.beta2,
                                              .tau = o.tau,
                                              .weight_decay = o.weight_decay,
                                              .trust = o.trust,
                                              .c = o.c,
                                              .every = o.every};
    const std::vector<float> start = steps.model;
    const bool from_zero = o.kind == Optimizer::kLamb || o.kind == Optimizer::kDelayedNesterov;
    reference::OptimizerState oracle{.model = widened(start),
                                     .moment = std::vector<double>(start.size(), 0.0),
                                     .variance = std::vector<double>(start.size(), from_zero ? 0.0 : o.tau * o.tau)};
    for (std::uint64_t round = 1; round <= 60; ++round) {
      const auto mean = test_values::normals(start.size(), 100 + round, 0.1F);
      steps.take(mean);
      reference::optimizer_step(round::optimizer_name(o.kind), options, round, widened(mean), oracle_layers, oracle);
      for (std::size_t i = 0; i < start.size(); ++i) {
        ASSERT_NEAR(steps.model[i], oracle.model[i], 2e-5) << text << ", round " << round << ", value " << i;
      }
    }
    EXPECT_GT(distance(steps.model, start), 0.1) << text << " goes somewhere";
  }
}

TEST(ServerStep, DoesNotDependOnTheCuts) {
  const round::Schema schema = some_schema();
  for (const char* text : kTexts) {
    const auto initial = test_values::normals(schema.value_count(), 2);
    Steps whole(text, initial, 1'000'000, layers_of(schema, {}));
    Steps cut(text, initial, 257, layers_of(schema, {}));
    for (std::uint64_t round = 0; round < 5; ++round) {
      const auto mean = test_values::normals(initial.size(), 10 + round);
      whole.take(mean);
      cut.take(mean);
    }
    if (text == std::string_view(kTexts[6]) || text == std::string_view(kTexts[7])) {
      EXPECT_LT(distance(cut.model, whole.model), 1e-5) << text << ": norms depend on the cuts, in their last bits";
    } else {
      EXPECT_EQ(cut.model, whole.model) << text;
      EXPECT_EQ(cut.state, whole.state) << text;
    }
  }
}

TEST(ServerStep, FedAvgSubtractsAndRoundsOnce) {
  const auto mean = test_values::adversarial(3'000, 1, 1e6F);
  const auto model = test_values::normals(3'000, 2);
  for (const double lr : {1.0, 0.3}) {
    Steps steps(round::to_string({.lr = lr}), model);
    steps.take(mean);
    for (std::size_t i = 0; i < model.size(); ++i) {
      ASSERT_EQ(steps.model[i], static_cast<float>(static_cast<double>(model[i]) - lr * static_cast<double>(mean[i])));
    }
  }
}

TEST(ServerStep, FedAvgMKeepsAMomentum) {
  Steps steps("fedavgm:lr=0.7,momentum=0.9", test_values::normals(2'000, 3));
  auto expected = steps.model;
  std::vector<float> moment(expected.size(), 0.0F);
  for (std::uint64_t round = 0; round < 5; ++round) {
    const auto mean = test_values::normals(2'000, 10 + round);
    steps.take(mean);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      moment[i] = static_cast<float>(0.9 * static_cast<double>(moment[i]) + static_cast<double>(mean[i]));
      expected[i] = static_cast<float>(static_cast<double>(expected[i]) - 0.7 * static_cast<double>(moment[i]));
    }
    ASSERT_EQ(steps.model, expected);
    ASSERT_EQ(steps.state, moment);
  }
}

TEST(ServerStep, MomentumZeroIsFedAvg) {
  const auto mean = test_values::normals(500, 4);
  Steps plain("fedavg:lr=0.3", test_values::normals(500, 5));
  plain.take(mean);
  for (const char* text : {"fedavgm:lr=0.3,momentum=0", "nesterov:lr=0.3,momentum=0"}) {
    Steps steps(text, test_values::normals(500, 5));
    steps.take(mean);
    EXPECT_EQ(steps.model, plain.model) << text;
  }
}

TEST(ServerStep, TheMeanItselfIsTheNextModel) {
  const auto mean = test_values::adversarial(3'000, 3, 1e6F);
  Steps steps("mean", test_values::normals(3'000, 4));
  steps.take(mean, 20);
  EXPECT_EQ(steps.model, mean);
  EXPECT_TRUE(steps.state.empty());
}

// With one site and lr 1, fedavg and DiLoCo without momentum take the site's model, as far as fp32 differences allow.
TEST(ServerStep, OneSiteIsThatSitesModel) {
  const std::vector<float> base = {1.0F, -2.0F, 0.5F};
  const std::vector<float> local = {1.25F, -2.5F, 0.5F};
  std::vector<float> mean(3);
  for (std::size_t i = 0; i < 3; ++i) mean[i] = base[i] - local[i];
  for (const char* text : {"fedavg", "nesterov:lr=1,momentum=0"}) {
    Steps steps(text, base);
    steps.take(mean);
    EXPECT_EQ(steps.model, local) << text;
  }
}

// DiLoCo's step as its authors' code has it: torch.optim.SGD(lr=0.7, momentum=0.9, nesterov=True) on D.
TEST(ServerStep, NesterovLooksAhead) {
  Steps steps("nesterov", {10.0F});
  steps.take({1.0F});  // b = 1; 10 - 0.7 * (1 + 0.9)
  EXPECT_FLOAT_EQ(steps.model[0], 8.67F);
  steps.take({1.0F});  // b = 1.9; 8.67 - 0.7 * (1 + 1.71)
  EXPECT_FLOAT_EQ(steps.model[0], 6.773F);
}

// lr 1, momentum 1/2, N = 2, c = 1/4: between, D/2 + m/8; each second, D/2 + 3/8 m. Every number here is exact.
TEST(ServerStep, DelayedNesterovByHand) {
  Steps steps("delayed_nesterov:lr=1,momentum=0.5,every=2,c=0.25", {10.0F});
  steps.take({1.0F});
  EXPECT_EQ(steps.model[0], 9.5F);
  EXPECT_EQ(steps.state, (std::vector<float>{0, 1})) << "the moment, then the buffer";
  steps.take({3.0F});  // m = (1 + 3) / 2
  EXPECT_EQ(steps.model[0], 7.25F);
  EXPECT_EQ(steps.state, (std::vector<float>{2, 0}));
  steps.take({1.0F});
  EXPECT_EQ(steps.model[0], 6.5F);
  EXPECT_EQ(steps.state, (std::vector<float>{2, 1}));
  steps.take({-1.0F});  // m = 2 / 2 + (1 - 1) / 2
  EXPECT_EQ(steps.model[0], 6.625F);
  EXPECT_EQ(steps.state, (std::vector<float>{1, 0}));
}

TEST(ServerStep, DelayedByOneCommitIsNesterov) {
  const auto initial = test_values::normals(1'000, 40);
  Steps plain("nesterov:lr=0.3,momentum=0.8,warmup=3", initial);
  Steps delayed("delayed_nesterov:lr=0.3,momentum=0.8,every=1,warmup=3", initial);
  for (std::uint64_t round = 0; round < 6; ++round) {
    const auto mean = test_values::normals(1'000, 41 + round);
    plain.take(mean);
    delayed.take(mean);
    ASSERT_EQ(delayed.model, plain.model);
    ASSERT_EQ(std::vector(delayed.state.begin(), delayed.state.begin() + 1'000), plain.state);
  }
}

// What the rate is meant for: N commits of one contribution each go where one of nesterov with all N goes.
TEST(ServerStep, DelayedByFourCommitsGoesWhereNesterovGoesWithTheirMean) {
  const auto initial = test_values::normals(500, 50);
  Steps plain("nesterov", initial);
  Steps delayed("delayed_nesterov:every=4", initial);
  for (std::uint64_t round = 0; round < 5; ++round) {
    std::vector<float> mean(500, 0.0F);
    for (std::uint64_t part = 0; part < 4; ++part) {
      const auto one = test_values::normals(500, 60 + 4 * round + part, 0.1F);
      delayed.take(one);
      for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += one[i] / 4;
    }
    plain.take(mean);
    EXPECT_LT(distance(delayed.model, plain.model), 1e-4);
  }
  EXPECT_GT(distance(plain.model, initial), 1);
}

// One step of each by hand: D = 2, v0 = tau^2 = 0.25, without bias correction.
TEST(ServerStep, TheAdaptiveOnesByHand) {
  const std::pair<const char*, double> cases[] = {
      {"fedadagrad:lr=0.1,tau=0.5", 1 - 0.1 * (0.1 * 2) / (std::sqrt(0.25 + 4) + 0.5)},
      {"fedadam:lr=0.1,tau=0.5", 1 - 0.1 * (0.1 * 2) / (std::sqrt(0.99 * 0.25 + 0.01 * 4) + 0.5)},
      {"fedyogi:lr=0.1,tau=0.5", 1 - 0.1 * (0.1 * 2) / (std::sqrt(0.25 + 0.01 * 4) + 0.5)},
  };
  for (const auto& [text, expected] : cases) {
    Steps steps(text, {1.0F});
    steps.take({2.0F});
    EXPECT_NEAR(steps.model[0], expected, 1e-6) << text;
    EXPECT_FLOAT_EQ(steps.state[0], 0.2F) << text;
  }
  // Yogi takes off where the variance is above the square.
  Steps steps("fedyogi:tau=1", {1.0F});
  steps.take({0.5F});
  EXPECT_FLOAT_EQ(steps.state[1], 1 - 0.01F * 0.25F);
}

TEST(ServerStep, VarianceStartsAtTauSquaredOrAbove) {
  for (const char* text : {"fedadagrad", "fedadam:tau=0.3", "fedyogi:tau=1e-9"}) {
    const auto optimizer = round::parse_server_optimizer(text).value();
    const auto state = initial_state(optimizer, 3);
    ASSERT_EQ(state.size(), 6U);
    EXPECT_EQ(state[0], 0.0F);
    EXPECT_GE(static_cast<double>(state[3]), optimizer.tau * optimizer.tau);
    EXPECT_NEAR(state[5], optimizer.tau * optimizer.tau, 1e-6 * optimizer.tau * optimizer.tau);
  }
  EXPECT_EQ(initial_state(ServerOptimizer::of(Optimizer::kLamb), 2), std::vector<float>(4, 0.0F));
  EXPECT_EQ(initial_state(ServerOptimizer::of(Optimizer::kDelayedNesterov), 2), std::vector<float>(4, 0.0F));
  EXPECT_EQ(initial_state(ServerOptimizer::of(Optimizer::kFedAvgM), 2), std::vector<float>(2, 0.0F));
  EXPECT_TRUE(initial_state({}, 2).empty());
}

TEST(ServerStep, AMeanOfZeroMovesNothing) {
  for (const char* text : kTexts) {
    if (std::string_view(text).find("decay") != std::string_view::npos || text == std::string_view("mean")) continue;
    Steps steps(text, test_values::normals(100, 6));
    const auto before = steps.model;
    for (int round = 0; round < 3; ++round) steps.take(std::vector<float>(100, 0.0F));
    EXPECT_EQ(steps.model, before) << text;
  }
}

// LAMB's and LARS's reason to be: the step's length is a layer's norm times lr, whatever the scale of D.
TEST(ServerStep, LayerRatesDoNotDependOnTheScaleOfTheMean) {
  const auto initial = test_values::normals(4'000, 7);
  for (const char* text : {"lamb:tau=1e-12", "lars:momentum=0"}) {
    std::vector<std::vector<float>> models;
    for (const float scale : {1.0F, 1024.0F, 0x1p-10F}) {
      Steps steps(text, initial);
      for (std::uint64_t round = 0; round < 3; ++round) {
        steps.take(test_values::normals(4'000, 20 + round, scale));
      }
      models.push_back(steps.model);
    }
    for (const auto& model : models) EXPECT_LT(distance(model, models[0]), 1e-4) << text;
    EXPECT_GT(distance(models[0], initial), 0.05) << text;
  }
  Steps steps("lamb", initial);
  steps.take(test_values::normals(4'000, 30));
  const std::vector<float> zeros(4'000, 0.0F);
  EXPECT_NEAR(distance(steps.model, initial), 0.01 * distance(initial, zeros), 1e-3);
}

TEST(ServerStep, BiasesTakeThePlainRate) {
  const std::vector<Layer> layers = {{.offset_values = 0, .count = 100, .scaled = false}};
  const auto initial = test_values::normals(100, 8);
  const auto mean = test_values::normals(100, 9);
  Steps bias("lars:momentum=0,trust=0.001,weight_decay=0.5", initial, 1'000, layers);
  bias.take(mean);
  Steps plain("fedavg", initial);
  plain.take(mean);
  EXPECT_LT(distance(bias.model, plain.model), 1e-6);
}

TEST(ServerStep, ALayerOfZerosTakesThePlainRate) {
  for (const char* text : {"lars:momentum=0", "lamb"}) {
    Steps steps(text, std::vector<float>(10, 0.0F));
    steps.take(std::vector<float>(10, 2.0F));
    EXPECT_LT(steps.model[0], 0.0F) << text;
    EXPECT_TRUE(std::isfinite(steps.model[0])) << text;
  }
}

TEST(ServerStep, WarmUpAndWeightReachTheRate) {
  const auto initial = test_values::normals(64, 11);
  const auto mean = test_values::normals(64, 12);
  Steps warming("fedavg:lr=0.5,warmup=4,scale_to=10", initial);
  warming.take(mean, 20);  // 0.5 * 1/4 * 20/10
  Steps plain("fedavg:lr=0.25", initial);
  plain.take(mean);
  EXPECT_EQ(warming.model, plain.model);
}

TEST(ServerStep, LayersAreTheAveragedTensorsInOrder) {
  const auto layers = layers_of(some_schema(), {});
  ASSERT_EQ(layers.size(), 5U);
  EXPECT_EQ(layers[1].offset_values, 30U * 41U);
  EXPECT_EQ(layers[4].offset_values, 30U * 41U + 77 + 1);
  EXPECT_TRUE(layers[0].scaled && layers[4].scaled);
  EXPECT_FALSE(layers[1].scaled || layers[3].scaled);
}

// Two norms with their statistics, cut in the middle of one by chunks of 100; a counter is no float.
round::Schema schema_with_norms() {
  return round::Schema::make({{"conv", round::DType::kF32, {9, 10}},
                              {"norm1.running_mean", round::DType::kF32, {20}},
                              {"norm1.running_var", round::DType::kF32, {20}},
                              {"norm1.num_batches_tracked", round::DType::kI64, {}},
                              {"fc", round::DType::kF32, {7, 11}},
                              {"norm2.running_var", round::DType::kF32, {300}}})
      .value();
}

TEST(ServerStep, StatisticsAreTheMeanOfTheSitesOwnWhateverStepsTheRest) {
  const round::Schema schema = schema_with_norms();
  const std::vector<bool> is_statistic = [&] {
    std::vector<bool> marks;
    for (const Layer& layer : layers_of(schema, {})) marks.insert(marks.end(), layer.count, layer.is_statistic);
    return marks;
  }();
  ASSERT_EQ(std::ranges::count(is_statistic, true), 20 + 20 + 300);
  for (const char* text : kTexts) {
    const ServerOptimizer optimizer = round::parse_server_optimizer(text).value();
    if (optimizer.kind == Optimizer::kMean) continue;
    ServerOptimizer for_all = optimizer;
    for_all.averaged = "none";
    const auto initial = test_values::normals(schema.value_count(), 6);
    Steps apart(text, initial, 100, layers_of(schema, optimizer));
    Steps stepped(text, initial, 100, layers_of(schema, for_all));
    const std::vector<float> first_state = apart.state;
    for (std::uint64_t round = 0; round < 4; ++round) {
      const std::vector<float> before = apart.model;
      // What the sites have is within 0.1 of what they were given, so no statistic below that leaves its sign.
      const auto mean = test_values::normals(initial.size(), 20 + round, 0.1F);
      apart.take(mean);
      stepped.take(mean);
      for (std::size_t i = 0; i < mean.size(); ++i) {
        if (is_statistic[i]) {
          ASSERT_FLOAT_EQ(apart.model[i], before[i] - mean[i]) << text << ", value " << i;
          ASSERT_EQ(apart.state.empty() ? 0.0F : apart.state[i], first_state.empty() ? 0.0F : first_state[i]) << text;
        } else {
          ASSERT_EQ(apart.model[i], stepped.model[i]) << text << ", value " << i;
        }
      }
    }
    if (optimizer.kind != Optimizer::kFedAvg) {
      EXPECT_NE(stepped.state, apart.state.empty() ? std::vector<float>{1} : apart.state) << text;
    }
    EXPECT_GT(distance(apart.model, stepped.model), 0.1) << text;
  }
}

TEST(ServerStep, RefusesLengthsThatDoNotFit) {
  const kernels::ChunkLayout layout{.value_count = 3};
  const ServerStep step(ServerOptimizer::of(Optimizer::kFedAvgM), layout, {}, 1, 1);
  std::vector<float> model(3, 1.0F), state(3, 0.0F);
  const std::vector<float> mean(3, 1.0F);
  EXPECT_THAT(step.apply(0, mean, {}, model).error().message, HasSubstr("expected 3, 3 and 3"));
  EXPECT_FALSE(step.apply(0, std::span(mean).first(2), state, model).ok());
  EXPECT_FALSE(step.apply(1, mean, state, model).ok());
  EXPECT_EQ(model, std::vector<float>(3, 1.0F));
}

}  // namespace
}  // namespace fluvial::aggregate

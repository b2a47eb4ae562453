#include "core/aggregate/server_optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/test_values.h"

namespace fluvial::aggregate {
namespace {

using ::testing::HasSubstr;
namespace test_values = kernels::test_values;

TEST(ServerOptimizer, TextsRoundTripAndRefusalsSayWhatWasExpected) {
  EXPECT_EQ(to_string(parse_server_optimizer("fedavg").value()), "fedavg:lr=1");
  EXPECT_EQ(to_string(parse_server_optimizer("fedavgm:momentum=0.5,lr=0.25").value()), "fedavgm:lr=0.25,momentum=0.5");
  for (const char* text : {"fedavg", "fedavg:lr=0.125", "fedavgm", "fedavgm:lr=2,momentum=0"}) {
    const ServerOptimizer optimizer = parse_server_optimizer(text).value();
    EXPECT_EQ(parse_server_optimizer(to_string(optimizer)).value(), optimizer);
  }
  const std::pair<const char*, const char*> cases[] = {
      {"adam", "fedavg[:lr=1] or fedavgm"}, {"fedavg:", "option lr"},          {"fedavg:momentum=0.9", "option lr"},
      {"fedavg:lr=x", "lr to be a number"}, {"fedavg:lr=0", "lr above 0"},     {"fedavg:lr=inf", "lr above 0"},
      {"fedavgm:lr=1,", "options lr"},      {"fedavgm:momentum=1", "below 1"}, {"fedavgm:momentum=nan", "below 1"},
  };
  for (const auto& [text, message] : cases) {
    const auto optimizer = parse_server_optimizer(text);
    ASSERT_FALSE(optimizer.ok()) << text;
    EXPECT_EQ(optimizer.error().code, Code::kInvalidArgument);
    EXPECT_THAT(optimizer.error().message, HasSubstr(message)) << text;
  }
}

TEST(ServerOptimizer, FedAvgSubtractsAndRoundsOnce) {
  const auto mean = test_values::adversarial(3'000, 1, 1e6F);
  const auto model = test_values::normals(3'000, 2);
  for (const double lr : {1.0, 0.3}) {
    auto next = model;
    ASSERT_TRUE((ServerOptimizer{.lr = lr}.apply(mean, {}, next).ok()));
    for (std::size_t i = 0; i < next.size(); ++i) {
      ASSERT_EQ(next[i], static_cast<float>(static_cast<double>(model[i]) - lr * static_cast<double>(mean[i])));
    }
  }
}

// With one site and lr 1, fedavg takes the site's model, as far as fp32 differences allow.
TEST(ServerOptimizer, FedAvgOfOneSiteIsThatSitesModel) {
  const std::vector<float> base = {1.0F, -2.0F, 0.5F};
  const std::vector<float> local = {1.25F, -2.5F, 0.5F};
  std::vector<float> mean(3);
  for (std::size_t i = 0; i < 3; ++i) mean[i] = base[i] - local[i];
  auto next = base;
  ASSERT_TRUE(ServerOptimizer{}.apply(mean, {}, next).ok());
  EXPECT_EQ(next, local);
}

TEST(ServerOptimizer, FedAvgMKeepsAMomentum) {
  const ServerOptimizer optimizer{.kind = ServerOptimizerKind::kFedAvgM, .lr = 0.7, .momentum = 0.9};
  EXPECT_EQ(optimizer.state_vectors(), 1U);
  auto model = test_values::normals(2'000, 3);
  auto expected = model;
  std::vector<float> state(model.size(), 0.0F);
  std::vector<float> moment = state;
  for (std::uint64_t round = 0; round < 5; ++round) {
    const auto mean = test_values::normals(2'000, 10 + round);
    ASSERT_TRUE(optimizer.apply(mean, state, model).ok());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      moment[i] = static_cast<float>(0.9 * static_cast<double>(moment[i]) + static_cast<double>(mean[i]));
      expected[i] = static_cast<float>(static_cast<double>(expected[i]) - 0.7 * static_cast<double>(moment[i]));
    }
    ASSERT_EQ(model, expected);
    ASSERT_EQ(state, moment);
  }
}

TEST(ServerOptimizer, FedAvgMWithoutMomentumIsFedAvg) {
  const auto mean = test_values::normals(500, 4);
  auto a = test_values::normals(500, 5);
  auto b = a;
  std::vector<float> state(500, 0.0F);
  ASSERT_TRUE(
      (ServerOptimizer{.kind = ServerOptimizerKind::kFedAvgM, .lr = 0.3, .momentum = 0}.apply(mean, state, a).ok()));
  ASSERT_TRUE((ServerOptimizer{.lr = 0.3}.apply(mean, {}, b).ok()));
  EXPECT_EQ(a, b);
}

TEST(ServerOptimizer, RefusesLengthsThatDoNotFit) {
  std::vector<float> model(3, 1.0F);
  const std::vector<float> mean(3, 1.0F);
  EXPECT_FALSE((ServerOptimizer{.kind = ServerOptimizerKind::kFedAvgM}.apply(mean, {}, model).ok()));
  EXPECT_FALSE(ServerOptimizer{}.apply(std::span(mean).first(2), {}, model).ok());
  EXPECT_EQ(model, std::vector<float>(3, 1.0F));
}

}  // namespace
}  // namespace fluvial::aggregate

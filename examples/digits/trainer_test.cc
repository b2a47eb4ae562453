#include "examples/digits/trainer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/base/rng.h"

namespace fluvial::digits {
namespace {

// Each digit is a bright pixel in noise.
Examples bright_pixels(std::size_t count) {
  Examples examples{.inputs = kClasses, .pixels = {}, .labels = {}};
  Rng rng(1);
  for (std::size_t i = 0; i < count; ++i) {
    const auto label = static_cast<std::uint8_t>(rng.below(kClasses));
    for (std::size_t p = 0; p < kClasses; ++p) {
      examples.pixels.push_back(static_cast<float>(0.5 * rng.uniform() + (p == label ? 0.6 : 0)));
    }
    examples.labels.push_back(label);
  }
  return examples;
}

constexpr ModelSpec kSpec{.kind = ModelKind::kMlp, .inputs = kClasses};

TEST(Sgd, TheSameSeedGivesTheSameBits) {
  const Examples examples = bright_pixels(50);
  const auto trained = [&](std::uint64_t seed) {
    std::vector<float> parameters = initial_model(kSpec, 1).parameters;
    train(kSpec, parameters, examples, {}, 30, seed);
    return parameters;
  };
  EXPECT_EQ(trained(1), trained(1));
  EXPECT_NE(trained(1), trained(2));
}

TEST(Sgd, FollowsItsFormula) {
  const Examples examples = bright_pixels(1);  // one image: the order does not matter
  const SgdSettings settings{.learning_rate = 0.1, .batch_size = 2, .momentum = 0.5, .weight_decay = 0.25};
  std::vector<float> expected = initial_model(kSpec, 1).parameters;
  std::vector<float> trained = expected;
  std::vector<float> velocity(expected.size());
  Network<float> network(kSpec);
  for (int step = 0; step < 2; ++step) {
    std::vector<float> gradient(expected.size());
    network.accumulate(expected, examples.image(0), examples.labels[0], gradient);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      velocity[i] = 0.5F * velocity[i] + gradient[i] + 0.25F * expected[i];
      expected[i] -= 0.1F * velocity[i];
    }
  }
  train(kSpec, trained, examples, settings, 2, 9);
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(trained[i], expected[i], 1e-6);
}

TEST(Sgd, Learns) {
  const Examples examples = bright_pixels(400);
  std::vector<float> parameters = initial_model(kSpec, 1).parameters;
  const Score before = evaluate(kSpec, parameters, examples);
  const Score during = train(kSpec, parameters, examples, {}, 500, 1);
  const Score after = evaluate(kSpec, parameters, examples);
  EXPECT_LT(before.accuracy, 0.5);
  EXPECT_GT(after.accuracy, 0.9);
  EXPECT_LT(after.loss, before.loss);
  EXPECT_LT(during.loss, before.loss);
  EXPECT_EQ(during.accuracy, after.accuracy);
}

// The real images: what a bright pixel shows needs no convolution.
TEST(Sgd, CnnLearnsTheDigits) {
  const Result<Data> data = load_data(FLUVIAL_DIGITS_CSV);
  ASSERT_TRUE(data.ok());
  const ModelSpec spec{.kind = ModelKind::kCnn, .inputs = data->train.inputs};
  std::vector<float> parameters = initial_model(spec, 1).parameters;
  const Score before = evaluate(spec, parameters, data->test);
  train(spec, parameters, data->train, {.learning_rate = 0.1, .batch_size = 16}, 600, 1);
  const Score after = evaluate(spec, parameters, data->test);
  EXPECT_LT(before.accuracy, 0.3);
  EXPECT_GT(after.accuracy, 0.9);
  EXPECT_LT(after.loss, 0.25);
}

TEST(Sgd, NoStepChangesNothing) {
  std::vector<float> parameters = initial_model(kSpec, 1).parameters;
  EXPECT_EQ(train(kSpec, parameters, bright_pixels(5), {}, 0, 1).loss, 0);
  EXPECT_EQ(parameters, initial_model(kSpec, 1).parameters);
}

TEST(SgdSettings, ComeFromThePlan) {
  const Result<SgdSettings> settings =
      sgd_from_config({{"learning_rate", 0.5}, {"batch_size", 7.0}, {"momentum", 0.25}, {"weight_decay", 0.125}});
  ASSERT_TRUE(settings.ok());
  EXPECT_EQ(settings->learning_rate, 0.5);
  EXPECT_EQ(settings->batch_size, 7u);
  EXPECT_EQ(settings->momentum, 0.25);
  EXPECT_EQ(settings->weight_decay, 0.125);
  EXPECT_EQ(sgd_from_config({})->batch_size, SgdSettings{}.batch_size);
}

TEST(SgdSettings, RefusesWhatIsOutOfRange) {
  const double nan = std::nan("");
  for (const auto& [key, value] : std::vector<std::pair<std::string, double>>{{"learning_rate", 0},
                                                                              {"learning_rate", nan},
                                                                              {"learning_rate", 101},
                                                                              {"batch_size", 0},
                                                                              {"batch_size", 1.5},
                                                                              {"batch_size", 1e9},
                                                                              {"batch_size", nan},
                                                                              {"momentum", 1},
                                                                              {"momentum", -0.1},
                                                                              {"momentum", nan},
                                                                              {"weight_decay", 2},
                                                                              {"weight_decay", nan},
                                                                              {"learning-rate", 0.1}}) {
    EXPECT_EQ(sgd_from_config({{key, value}}).error().code, Code::kInvalidArgument) << key << " = " << value;
  }
  EXPECT_EQ(sgd_from_config({{"learning_rate", "0.1"}}).error().message,
            "worker parameter learning_rate: expected a number");
}

}  // namespace
}  // namespace fluvial::digits

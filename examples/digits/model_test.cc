#include "examples/digits/model.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/base/rng.h"

namespace fluvial::digits {
namespace {

constexpr ModelKind kKinds[] = {ModelKind::kSoftmax, ModelKind::kMlp, ModelKind::kCnn};

// The loss is smooth but where a ReLU bends, or two pixels of a 2 x 2 square are equal: none is that close with these
// images.
TEST(Network, GradientAgreesWithFiniteDifferences) {
  constexpr double kStep = 1e-6;
  for (const ModelKind kind : kKinds) {
    const ModelSpec spec{.kind = kind, .inputs = kind == ModelKind::kCnn ? 16u : 7u};
    const Model initial = initial_model(spec, 5);
    std::vector<double> parameters(initial.parameters.begin(), initial.parameters.end());
    Rng rng(11);
    for (double& parameter : parameters) parameter += 0.1 * (rng.uniform() - 0.5);  // biases too
    Network<double> network(spec);
    for (std::uint8_t label = 0; label < kClasses; ++label) {
      std::vector<float> image(spec.inputs);
      for (float& pixel : image) pixel = static_cast<float>(rng.uniform());
      image[label % spec.inputs] = 0;
      std::vector<double> gradient(parameters.size());
      const double loss = network.accumulate(parameters, image, label, gradient);
      EXPECT_EQ(loss, network.judge(parameters, image, label).loss);
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        std::vector<double> moved = parameters;
        moved[i] += kStep;
        const double above = network.judge(moved, image, label).loss;
        moved[i] -= 2 * kStep;
        const double below = network.judge(moved, image, label).loss;
        ASSERT_NEAR(gradient[i], (above - below) / (2 * kStep), 1e-7) << model_name(kind) << ", parameter " << i;
      }
    }
  }
}

TEST(Network, AccumulateAddsToTheGradient) {
  const ModelSpec spec{.kind = ModelKind::kMlp, .inputs = 3};
  const Model model = initial_model(spec, 1);
  const std::vector<float> image{0.5F, 0, 1};
  Network<float> network(spec);
  std::vector<float> once(model.parameters.size());
  std::vector<float> twice(model.parameters.size());
  network.accumulate(model.parameters, image, 4, once);
  network.accumulate(model.parameters, image, 4, twice);
  network.accumulate(model.parameters, image, 4, twice);
  for (std::size_t i = 0; i < once.size(); ++i) EXPECT_EQ(twice[i], 2 * once[i]);
}

TEST(Network, JudgesWithLargeLogits) {
  const ModelSpec spec{.kind = ModelKind::kSoftmax, .inputs = 1};
  std::vector<float> parameters(parameter_count(spec));
  parameters[3] = 10'000;  // the weight of class 3
  Network<float> network(spec);
  const std::vector<float> image{1};
  EXPECT_EQ(network.judge(parameters, image, 3).loss, 0);
  EXPECT_TRUE(network.judge(parameters, image, 3).right);
  EXPECT_EQ(network.judge(parameters, image, 5).loss, 10'000);
  EXPECT_FALSE(network.judge(parameters, image, 5).right);
}

TEST(Model, FitsItsSchemaAndComesBackFromItsBytes) {
  for (const ModelKind kind : kKinds) {
    const ModelSpec spec{.kind = kind, .inputs = 64};
    const round::Schema schema = schema_of(spec);
    EXPECT_EQ(schema.value_count(), parameter_count(spec));
    Model model = initial_model(spec, 3);
    EXPECT_EQ(model.counters.size(), schema.integer_count());
    for (std::int64_t& counter : model.counters) counter = 800;
    Buffer bytes(schema.model_bytes());
    model_to_bytes(schema, model, bytes.span());
    const Model again = model_from_bytes(schema, bytes.span());
    EXPECT_EQ(again.parameters, model.parameters);
    EXPECT_EQ(again.counters, model.counters);
  }
}

TEST(Model, IsRecognisedByItsSchema) {
  for (const ModelKind kind : kKinds) {
    const round::Schema schema = schema_of({.kind = kind, .inputs = 64});
    const Result<ModelSpec> spec = spec_of(schema, 64);
    ASSERT_TRUE(spec.ok());
    EXPECT_EQ(spec->kind, kind);
    EXPECT_EQ(spec_of(schema, 784).error().code, Code::kFailedPrecondition);
    EXPECT_EQ(model_from_name(model_name(kind)).value(), kind);
  }
  EXPECT_EQ(spec_of(round::Schema(), 64).error().code, Code::kFailedPrecondition);
  EXPECT_EQ(model_from_name("resnet").error().code, Code::kInvalidArgument);
}

TEST(Model, CnnIsForSquareImagesThatCanBeHalvedTwice) {
  for (const std::size_t inputs : {16, 64, 784})
    EXPECT_TRUE(check_spec({.kind = ModelKind::kCnn, .inputs = inputs}).ok());
  for (const std::size_t inputs : {0, 7, 36, 63, 128}) {
    EXPECT_EQ(check_spec({.kind = ModelKind::kCnn, .inputs = inputs}).error().code, Code::kInvalidArgument) << inputs;
    EXPECT_TRUE(check_spec({.kind = ModelKind::kMlp, .inputs = inputs}).ok());
    EXPECT_EQ(spec_of(schema_of({.kind = ModelKind::kCnn, .inputs = 64}), inputs).error().code,
              Code::kFailedPrecondition);
  }
}

TEST(Model, StartsFromItsSeed) {
  const ModelSpec spec;
  EXPECT_EQ(initial_model(spec, 1).parameters, initial_model(spec, 1).parameters);
  EXPECT_NE(initial_model(spec, 1).parameters, initial_model(spec, 2).parameters);
}

}  // namespace
}  // namespace fluvial::digits

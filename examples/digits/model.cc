#include "examples/digits/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "examples/digits/random.h"

namespace fluvial::digits {
namespace {

constexpr ModelKind kKinds[] = {ModelKind::kSoftmax, ModelKind::kMlp, ModelKind::kCnn};
constexpr std::size_t kHidden = 32;

// The side of a square image that the cnn halves twice; 0: not such an image.
std::size_t side_of(std::size_t inputs) {
  std::size_t side = 0;
  while (side * side < inputs) side += 4;
  return side * side == inputs ? side : 0;
}

std::array<ConvolutionShape, 2> blocks_of(const ModelSpec& spec) {
  const std::size_t side = side_of(spec.inputs);
  return {ConvolutionShape{.inputs = 1, .outputs = 8, .side = side},
          ConvolutionShape{.inputs = 8, .outputs = 16, .side = side / 2}};
}

// What the last layer sees: hidden units, or the image.
std::size_t hidden_count(const ModelSpec& spec) {
  if (spec.kind == ModelKind::kCnn) return blocks_of(spec).back().output_count();
  return spec.kind == ModelKind::kMlp ? kHidden : 0;
}
std::size_t last_inputs(const ModelSpec& spec) {
  return spec.kind == ModelKind::kSoftmax ? spec.inputs : hidden_count(spec);
}

// A dense layer's parameters: the weights, one row for each input, then the biases.
constexpr std::size_t dense_count(std::size_t inputs, std::size_t outputs) { return (inputs + 1) * outputs; }

// outputs = biases + inputs * weights. Most pixels are 0: their rows are skipped.
template <typename T, typename Input>
void dense(std::span<const T> parameters, std::span<const Input> inputs, std::span<T> outputs) {
  const std::span<const T> biases = parameters.last(outputs.size());
  std::copy(biases.begin(), biases.end(), outputs.begin());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const T input = static_cast<T>(inputs[i]);
    if (input == T(0)) continue;
    const T* const row = parameters.data() + i * outputs.size();
    for (std::size_t o = 0; o < outputs.size(); ++o) outputs[o] += input * row[o];
  }
}

template <typename T, typename Input>
void dense_gradient(std::span<const Input> inputs, std::span<const T> errors, std::span<T> gradient) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const T input = static_cast<T>(inputs[i]);
    if (input == T(0)) continue;
    T* const row = gradient.data() + i * errors.size();
    for (std::size_t o = 0; o < errors.size(); ++o) row[o] += input * errors[o];
  }
  const std::span<T> biases = gradient.last(errors.size());
  for (std::size_t o = 0; o < errors.size(); ++o) biases[o] += errors[o];
}

void fill_uniform(std::span<float> weights, double bound, Rng& rng) {
  for (float& weight : weights) weight = static_cast<float>((2 * rng.uniform() - 1) * bound);
}

}  // namespace

std::string_view model_name(ModelKind kind) {
  switch (kind) {
    case ModelKind::kSoftmax: return "softmax";
    case ModelKind::kMlp: return "mlp";
    case ModelKind::kCnn: return "cnn";
  }
  FLUVIAL_CHECK(false, "every kind has a name");
}

Result<ModelKind> model_from_name(std::string_view name) {
  for (const ModelKind kind : kKinds) {
    if (name == model_name(kind)) return kind;
  }
  return Error{Code::kInvalidArgument, fmt::format("model {}: expected cnn, mlp or softmax", name)};
}

Status check_spec(const ModelSpec& spec) {
  if (spec.kind != ModelKind::kCnn || side_of(spec.inputs) > 0) return {};
  return Error{
      Code::kInvalidArgument,
      fmt::format("the cnn is for square images with a side of 4, 8, 12, ... pixels, and these have {} pixels: "
                  "take mlp or softmax",
                  spec.inputs)};
}

round::Schema schema_of(const ModelSpec& spec) {
  using round::DType;
  std::vector<round::Tensor> tensors;
  if (spec.kind == ModelKind::kSoftmax) {
    tensors = {{"softmax.weight", DType::kF32, {spec.inputs, kClasses}}, {"softmax.bias", DType::kF32, {kClasses}}};
  } else if (spec.kind == ModelKind::kCnn) {
    const auto [first, second] = blocks_of(spec);
    tensors = {{"convolution1.weight", DType::kF32, {first.outputs, first.inputs, 3, 3}},
               {"convolution1.bias", DType::kF32, {first.outputs}},
               {"convolution2.weight", DType::kF32, {second.outputs, second.inputs, 3, 3}},
               {"convolution2.bias", DType::kF32, {second.outputs}},
               {"softmax.weight", DType::kF32, {second.output_count(), kClasses}},
               {"softmax.bias", DType::kF32, {kClasses}}};
  } else {
    tensors = {{"steps", DType::kI64, {}},
               {"hidden.weight", DType::kF32, {spec.inputs, kHidden}},
               {"hidden.bias", DType::kF32, {kHidden}},
               {"softmax.weight", DType::kF32, {kHidden, kClasses}},
               {"softmax.bias", DType::kF32, {kClasses}}};
  }
  Result<round::Schema> schema = round::Schema::make(std::move(tensors));
  FLUVIAL_CHECK(schema.ok(), "the digits' own schema");
  return std::move(schema).value();
}

Result<ModelSpec> spec_of(const round::Schema& schema, std::size_t inputs) {
  for (const ModelKind kind : kKinds) {
    const ModelSpec spec{.kind = kind, .inputs = inputs};
    if (check_spec(spec).ok() && schema == schema_of(spec)) return spec;
  }
  return Error{Code::kFailedPrecondition,
               fmt::format("the task's model is neither softmax, mlp nor cnn for images of {} pixels", inputs)};
}

std::size_t parameter_count(const ModelSpec& spec) {
  std::size_t hidden = spec.kind == ModelKind::kMlp ? dense_count(spec.inputs, kHidden) : 0;
  if (spec.kind == ModelKind::kCnn) {
    for (const ConvolutionShape& block : blocks_of(spec)) hidden += block.parameter_count();
  }
  return hidden + dense_count(last_inputs(spec), kClasses);
}

Model initial_model(const ModelSpec& spec, std::uint64_t seed) {
  Model model{.parameters = std::vector<float>(parameter_count(spec), 0.0F), .counters = {}};
  Rng rng(mix({seed, 0x696e6974}));
  std::span<float> rest = model.parameters;
  const auto before_relu = [&](std::size_t weights, std::size_t inputs, std::size_t biases) {
    fill_uniform(rest.first(weights), std::sqrt(6.0 / static_cast<double>(inputs)), rng);
    rest = rest.subspan(weights + biases);
  };
  if (spec.kind == ModelKind::kMlp) {
    model.counters = {0};
    before_relu(spec.inputs * kHidden, spec.inputs, kHidden);
  } else if (spec.kind == ModelKind::kCnn) {
    for (const ConvolutionShape& block : blocks_of(spec)) {
      before_relu(block.filter_count(), 9 * block.inputs, block.outputs);
    }
  }
  const std::size_t inputs = last_inputs(spec);
  fill_uniform(rest.first(inputs * kClasses), std::sqrt(6.0 / static_cast<double>(inputs + kClasses)), rng);
  return model;
}

Model model_from_bytes(const round::Schema& schema, ByteSpan bytes) {
  Model model{.parameters = std::vector<float>(schema.value_count()),
              .counters = std::vector<std::int64_t>(schema.integer_count())};
  round::split_model(schema, bytes, model.parameters, model.counters);
  return model;
}

void model_to_bytes(const round::Schema& schema, const Model& model, MutableByteSpan bytes) {
  const Status joined = round::join_model(schema, model.parameters, model.counters, bytes);
  FLUVIAL_CHECK(joined.ok(), "an I64 holds every counter");
}

template <typename T>
Network<T>::Network(const ModelSpec& spec)
    : spec_(spec), hidden_(hidden_count(spec)), hidden_error_(hidden_.size()), probabilities_(kClasses) {
  if (spec.kind != ModelKind::kCnn) return;
  for (const ConvolutionShape& block : blocks_of(spec)) blocks_.emplace_back(block);
  image_.resize(spec.inputs);
  maps_.resize(blocks_of(spec).front().output_count());
  maps_error_.resize(maps_.size());
}

template <typename T>
void Network<T>::hidden(std::span<const T> parameters, std::span<const float> image) {
  if (spec_.kind == ModelKind::kMlp) {
    dense<T, float>(parameters.first(dense_count(spec_.inputs, kHidden)), image, hidden_);
    for (T& unit : hidden_) unit = std::max(unit, T(0));
  } else if (spec_.kind == ModelKind::kCnn) {
    const std::size_t first = blocks_of(spec_).front().parameter_count();
    std::transform(image.begin(), image.end(), image_.begin(), [](float pixel) { return static_cast<T>(pixel); });
    std::ranges::copy(blocks_[0].forward(parameters, image_), maps_.begin());
    std::ranges::copy(blocks_[1].forward(parameters.subspan(first), maps_), hidden_.begin());
  }
}

template <typename T>
T Network<T>::forward(std::span<const T> parameters, std::span<const float> image, std::uint8_t label) {
  hidden(parameters, image);
  const std::span<const T> last = parameters.last(dense_count(last_inputs(spec_), kClasses));
  if (spec_.kind == ModelKind::kSoftmax) {
    dense<T, float>(last, image, probabilities_);
  } else {
    dense<T, T>(last, hidden_, probabilities_);
  }
  best_ =
      static_cast<std::size_t>(std::max_element(probabilities_.begin(), probabilities_.end()) - probabilities_.begin());
  const T largest = probabilities_[best_];
  const T mine = probabilities_[label];
  T sum = 0;
  for (T& p : probabilities_) sum += p = std::exp(p - largest);
  for (T& p : probabilities_) p /= sum;
  return std::log(sum) + largest - mine;
}

template <typename T>
void Network<T>::accumulate_hidden(std::span<const T> parameters, std::span<const float> image, std::span<T> gradient) {
  if (spec_.kind == ModelKind::kMlp) {
    dense_gradient<T, float>(image, hidden_error_, gradient.first(dense_count(spec_.inputs, kHidden)));
    return;
  }
  const std::size_t first = blocks_of(spec_).front().parameter_count();
  blocks_[1].backward(parameters.subspan(first), maps_, hidden_error_, gradient.subspan(first), maps_error_);
  blocks_[0].backward(parameters, image_, maps_error_, gradient, {});
}

template <typename T>
T Network<T>::accumulate(std::span<const T> parameters, std::span<const float> image, std::uint8_t label,
                         std::span<T> gradient) {
  const T loss = forward(parameters, image, label);
  probabilities_[label] -= T(1);  // softmax and cross-entropy: d loss / d logit = p - [class = label]
  const std::span<const T> errors = probabilities_;
  if (spec_.kind == ModelKind::kSoftmax) {
    dense_gradient<T, float>(image, errors, gradient);
    return loss;
  }
  const std::size_t last = dense_count(hidden_.size(), kClasses);
  dense_gradient<T, T>(hidden_, errors, gradient.last(last));
  const std::span<const T> weights = parameters.last(last);
  for (std::size_t h = 0; h < hidden_.size(); ++h) {
    T error = 0;
    if (hidden_[h] > T(0)) {
      for (std::size_t c = 0; c < kClasses; ++c) error += errors[c] * weights[h * kClasses + c];
    }
    hidden_error_[h] = error;
  }
  accumulate_hidden(parameters, image, gradient);
  return loss;
}

template <typename T>
typename Network<T>::Verdict Network<T>::judge(std::span<const T> parameters, std::span<const float> image,
                                               std::uint8_t label) {
  const T loss = forward(parameters, image, label);
  return {.loss = loss, .right = best_ == label};
}

template class Network<float>;
template class Network<double>;

}  // namespace fluvial::digits

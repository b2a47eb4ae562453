#include "examples/digits/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "examples/digits/random.h"

namespace fluvial::digits {
namespace {

constexpr std::size_t kHidden = 32;

std::size_t last_inputs(const ModelSpec& spec) { return spec.kind == ModelKind::kMlp ? kHidden : spec.inputs; }

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

std::string_view model_name(ModelKind kind) { return kind == ModelKind::kMlp ? "mlp" : "softmax"; }

Result<ModelKind> model_from_name(std::string_view name) {
  if (name == "mlp") return ModelKind::kMlp;
  if (name == "softmax") return ModelKind::kSoftmax;
  return Error{Code::kInvalidArgument, fmt::format("model {}: expected mlp or softmax", name)};
}

round::Schema schema_of(const ModelSpec& spec) {
  using round::DType;
  std::vector<round::Tensor> tensors;
  if (spec.kind == ModelKind::kSoftmax) {
    tensors = {{"softmax.weight", DType::kF32, {spec.inputs, kClasses}}, {"softmax.bias", DType::kF32, {kClasses}}};
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
  for (const ModelKind kind : {ModelKind::kSoftmax, ModelKind::kMlp}) {
    const ModelSpec spec{.kind = kind, .inputs = inputs};
    if (schema == schema_of(spec)) return spec;
  }
  return Error{Code::kFailedPrecondition,
               fmt::format("the task's model is neither softmax nor mlp for images of {} pixels", inputs)};
}

std::size_t parameter_count(const ModelSpec& spec) {
  const std::size_t hidden = spec.kind == ModelKind::kMlp ? dense_count(spec.inputs, kHidden) : 0;
  return hidden + dense_count(last_inputs(spec), kClasses);
}

Model initial_model(const ModelSpec& spec, std::uint64_t seed) {
  Model model{.parameters = std::vector<float>(parameter_count(spec), 0.0F), .counters = {}};
  Rng rng(mix({seed, 0x696e6974}));
  std::span<float> rest = model.parameters;
  if (spec.kind == ModelKind::kMlp) {
    model.counters = {0};
    fill_uniform(rest.first(spec.inputs * kHidden), std::sqrt(6.0 / static_cast<double>(spec.inputs)), rng);
    rest = rest.subspan(dense_count(spec.inputs, kHidden));
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
    : spec_(spec),
      hidden_(spec.kind == ModelKind::kMlp ? kHidden : 0),
      hidden_error_(hidden_.size()),
      probabilities_(kClasses) {}

template <typename T>
T Network<T>::forward(std::span<const T> parameters, std::span<const float> image, std::uint8_t label) {
  const std::size_t last = dense_count(last_inputs(spec_), kClasses);
  if (spec_.kind == ModelKind::kMlp) {
    dense<T, float>(parameters.first(parameters.size() - last), image, hidden_);
    for (T& unit : hidden_) unit = std::max(unit, T(0));
    dense<T, T>(parameters.last(last), hidden_, probabilities_);
  } else {
    dense<T, float>(parameters, image, probabilities_);
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
T Network<T>::accumulate(std::span<const T> parameters, std::span<const float> image, std::uint8_t label,
                         std::span<T> gradient) {
  const T loss = forward(parameters, image, label);
  probabilities_[label] -= T(1);  // softmax and cross-entropy: d loss / d logit = p - [class = label]
  const std::span<const T> errors = probabilities_;
  if (spec_.kind == ModelKind::kSoftmax) {
    dense_gradient<T, float>(image, errors, gradient);
    return loss;
  }
  const std::size_t last = dense_count(kHidden, kClasses);
  dense_gradient<T, T>(hidden_, errors, gradient.last(last));
  const std::span<const T> weights = parameters.last(last);
  for (std::size_t h = 0; h < kHidden; ++h) {
    T error = 0;
    if (hidden_[h] > T(0)) {
      for (std::size_t c = 0; c < kClasses; ++c) error += errors[c] * weights[h * kClasses + c];
    }
    hidden_error_[h] = error;
  }
  dense_gradient<T, float>(image, hidden_error_, gradient.first(gradient.size() - last));
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

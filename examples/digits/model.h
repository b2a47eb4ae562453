// The models, their gradient, and their bytes as the federation sees them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/round/schema.h"
#include "examples/digits/convolution.h"
#include "examples/digits/examples.h"

namespace fluvial::digits {

enum class ModelKind {
  kSoftmax,  // softmax regression: W [inputs, 10], b [10]
  kMlp,      // inputs - 32 ReLU - 10
  kCnn,      // two convolution blocks (convolution.h) with 8 and 16 channels, then W, b as above
};
std::string_view model_name(ModelKind kind);  // "softmax", "mlp", "cnn"
Result<ModelKind> model_from_name(std::string_view name);

struct ModelSpec {
  ModelKind kind = ModelKind::kMlp;
  std::size_t inputs = 64;
};

// kInvalidArgument: the cnn is for square images whose side is a multiple of 4. What follows takes no other spec.
Status check_spec(const ModelSpec& spec);

// The fp32 tensors in order are the parameters of Network. The mlp also counts its steps in an I64 scalar: integers are
// not averaged, the federation keeps the largest of the contributors' values.
round::Schema schema_of(const ModelSpec& spec);
// The model that has this schema, for images of `inputs` pixels. kFailedPrecondition: none of these models.
Result<ModelSpec> spec_of(const round::Schema& schema, std::size_t inputs);
std::size_t parameter_count(const ModelSpec& spec);

struct Model {
  std::vector<float> parameters;
  std::vector<std::int64_t> counters;  // steps, for the mlp
};
// Glorot and Bengio's uniform for the layer before the softmax, He's for layers before a ReLU; biases and counters 0.
Model initial_model(const ModelSpec& spec, std::uint64_t seed);
Model model_from_bytes(const round::Schema& schema, ByteSpan bytes);
void model_to_bytes(const round::Schema& schema, const Model& model, MutableByteSpan bytes);

// Softmax cross-entropy of one image after the other. Holds scratch space: one thread at a time. T is float; the test
// of the gradient uses double.
template <typename T>
class Network {
 public:
  explicit Network(const ModelSpec& spec);

  // Returns the loss; adds its gradient to `gradient`.
  T accumulate(std::span<const T> parameters, std::span<const float> image, std::uint8_t label, std::span<T> gradient);

  struct Verdict {
    T loss = 0;
    bool right = false;
  };
  Verdict judge(std::span<const T> parameters, std::span<const float> image, std::uint8_t label);

 private:
  // Makes hidden_, if the model has hidden units.
  void hidden(std::span<const T> parameters, std::span<const float> image);
  T forward(std::span<const T> parameters, std::span<const float> image, std::uint8_t label);
  // The gradient of what makes hidden_, from hidden_error_.
  void accumulate_hidden(std::span<const T> parameters, std::span<const float> image, std::span<T> gradient);

  ModelSpec spec_;
  std::vector<Convolution<T>> blocks_;        // the cnn's two, one after the other
  std::vector<T> image_, maps_, maps_error_;  // the cnn's: what goes into the first block, and between the two
  std::vector<T> hidden_;                     // after the ReLU: what the last layer sees
  std::vector<T> hidden_error_;               // d loss / d hidden_, 0 where the ReLU is
  std::vector<T> probabilities_;              // then d loss / d logits
  std::size_t best_ = 0;                      // the class with the largest logit
};

extern template class Network<float>;
extern template class Network<double>;

}  // namespace fluvial::digits

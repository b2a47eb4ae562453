#include "examples/digits/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <variant>
#include <vector>

#include "examples/digits/random.h"

namespace fluvial::digits {
namespace {

// Image indices without end, each once before any comes again.
class Order {
 public:
  Order(std::size_t count, std::uint64_t seed) : rng_(seed), indices_(count), next_(count) {
    std::iota(indices_.begin(), indices_.end(), std::uint32_t{0});
  }
  std::uint32_t next() {
    if (next_ == indices_.size()) {
      shuffle(indices_, rng_);
      next_ = 0;
    }
    return indices_[next_++];
  }

 private:
  Rng rng_;
  std::vector<std::uint32_t> indices_;
  std::size_t next_;
};

Error out_of_range(const std::string& key, double value, std::string_view expected) {
  return Error{Code::kInvalidArgument, fmt::format("worker parameter {} = {}: expected {}", key, value, expected)};
}

}  // namespace

Result<SgdSettings> sgd_from_config(const round::WorkerConfig& config) {
  SgdSettings settings;
  for (const auto& [key, given] : config) {
    const double* number = std::get_if<double>(&given);
    if (number == nullptr) {
      return Error{Code::kInvalidArgument, fmt::format("worker parameter {}: expected a number", key)};
    }
    const double value = *number;
    if (key == "learning_rate") {
      if (!(value > 0 && value <= 100)) return out_of_range(key, value, "above 0 and up to 100");
      settings.learning_rate = value;
    } else if (key == "batch_size") {
      if (!(value >= 1 && value <= 65'536) || value != std::floor(value)) {
        return out_of_range(key, value, "a whole number of 1 to 65536");
      }
      settings.batch_size = static_cast<std::uint64_t>(value);
    } else if (key == "momentum") {
      if (!(value >= 0 && value < 1)) return out_of_range(key, value, "0 up to, but not, 1");
      settings.momentum = value;
    } else if (key == "weight_decay") {
      if (!(value >= 0 && value <= 1)) return out_of_range(key, value, "0 to 1");
      settings.weight_decay = value;
    } else {
      return Error{
          Code::kInvalidArgument,
          fmt::format("worker parameter {}: expected learning_rate, batch_size, momentum or weight_decay", key)};
    }
  }
  return settings;
}

Score train(const ModelSpec& spec, std::span<float> parameters, const Examples& examples, const SgdSettings& settings,
            std::uint64_t steps, std::uint64_t seed) {
  Network<float> network(spec);
  Order order(examples.count(), seed);
  std::vector<float> gradient(parameters.size());
  std::vector<float> velocity(parameters.size());
  const auto rate = static_cast<float>(settings.learning_rate);
  const auto momentum = static_cast<float>(settings.momentum);
  const auto decay = static_cast<float>(settings.weight_decay);
  const float share = 1.0F / static_cast<float>(settings.batch_size);
  double loss = 0;
  for (std::uint64_t step = 0; step < steps; ++step) {
    std::fill(gradient.begin(), gradient.end(), 0.0F);
    for (std::uint64_t i = 0; i < settings.batch_size; ++i) {
      const std::uint32_t index = order.next();
      loss +=
          static_cast<double>(network.accumulate(parameters, examples.image(index), examples.labels[index], gradient));
    }
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      velocity[i] = momentum * velocity[i] + share * gradient[i] + decay * parameters[i];
      parameters[i] -= rate * velocity[i];
    }
  }
  const double images = static_cast<double>(std::max<std::uint64_t>(steps * settings.batch_size, 1));
  return {.loss = loss / images, .accuracy = evaluate(spec, parameters, examples).accuracy};
}

Score evaluate(const ModelSpec& spec, std::span<const float> parameters, const Examples& examples) {
  Network<float> network(spec);
  double loss = 0;
  std::size_t right = 0;
  for (std::size_t i = 0; i < examples.count(); ++i) {
    const Network<float>::Verdict verdict = network.judge(parameters, examples.image(i), examples.labels[i]);
    loss += static_cast<double>(verdict.loss);
    right += verdict.right ? 1 : 0;
  }
  const double count = static_cast<double>(std::max<std::size_t>(examples.count(), 1));
  return {.loss = loss / count, .accuracy = static_cast<double>(right) / count};
}

}  // namespace fluvial::digits

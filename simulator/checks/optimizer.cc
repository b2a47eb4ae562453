#include "simulator/checks/optimizer.h"

#include <cmath>
#include <cstddef>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>

#include "simulator/checks/widths.h"

namespace fluvial::simulator {
namespace {

using round::Optimizer;

// One tensor of the flat vector. Biases and norms (one dimension, or none) have the plain rate and no decay.
struct Layer {
  std::size_t begin = 0, end = 0;
  bool scaled = false;
  bool averaged = false;  // and not stepped
};

// Whether a pattern of a plan fits a name, by trying what each star may stand for.
bool fits(std::string_view pattern, std::string_view name) {
  if (pattern.empty()) return name.empty();
  if (pattern.front() != '*') {
    return !name.empty() && (pattern.front() == '?' || pattern.front() == name.front()) &&
           fits(pattern.substr(1), name.substr(1));
  }
  for (std::size_t skipped = 0; skipped <= name.size(); ++skipped) {
    if (fits(pattern.substr(1), name.substr(skipped))) return true;
  }
  return false;
}

bool averages(const round::ServerOptimizer& o, std::string_view name) {
  if (o.kind == Optimizer::kMean || o.kind == Optimizer::kOnebitAdam || o.averaged == "none") return false;
  std::istringstream list(o.averaged);
  for (std::string pattern; std::getline(list >> std::ws, pattern, ',');) {
    while (pattern.ends_with(' ')) pattern.pop_back();
    if (fits(pattern, name)) return true;
  }
  return false;
}

std::vector<Layer> layers_of(const round::Schema& schema, const round::ServerOptimizer& o) {
  std::vector<Layer> layers;
  std::size_t at = 0;
  for (std::size_t i = 0; i < schema.tensors().size(); ++i) {
    const round::Tensor& tensor = schema.tensors()[i];
    if (!round::is_averaged(tensor.dtype)) continue;
    const auto count = static_cast<std::size_t>(schema.tensor_values(i));
    layers.push_back({at, at + count, tensor.shape.size() >= 2, averages(o, tensor.name)});
    at += count;
  }
  return layers;
}

double norm(std::span<const float> values) {
  double squares = 0;
  for (const float value : values) squares += wide(value) * wide(value);
  return std::sqrt(squares);
}

// The adaptive rules (Reddi et al. 2021, Algorithm 2): factors rounded once, every operation in fp32.
void adaptive(const round::ServerOptimizer& o, double lr, std::span<const float> mean, OptimizerState& s) {
  const float rate = narrow(lr), beta1 = narrow(o.beta1), rest1 = narrow(1.0 - o.beta1), beta2 = narrow(o.beta2),
              rest2 = narrow(1.0 - o.beta2), tau = narrow(o.tau);
  for (std::size_t i = 0; i < mean.size(); ++i) {
    const float d = mean[i];
    const float square = d * d;
    s.moment[i] = beta1 * s.moment[i] + rest1 * d;
    float& v = s.variance[i];
    if (o.kind == Optimizer::kFedAdagrad) {
      v = v + square;
    } else if (o.kind == Optimizer::kFedAdam) {
      v = beta2 * v + rest2 * square;
    } else if (v > square) {
      v = v - rest2 * square;
    } else if (v < square) {
      v = v + rest2 * square;
    }
    s.model[i] = s.model[i] - rate * (s.moment[i] / (std::sqrt(v) + tau));
  }
}

// Delayed Nesterov (Liu et al. 2024): the buffer's sum in fp32, else fp64, each result rounded once.
void delayed_nesterov(const round::ServerOptimizer& o, double lr, std::uint64_t round, std::span<const float> mean,
                      OptimizerState& s) {
  const auto every = static_cast<double>(o.every);
  const double one_of = 1 / every;
  const bool nth = round % o.every == 0;
  const double factor = (nth ? 1 - o.c * every + o.c : o.c) * o.momentum;
  for (std::size_t i = 0; i < mean.size(); ++i) {
    float& buffer = s.variance[i];
    buffer = buffer + mean[i];
    if (nth) s.moment[i] = narrow(o.momentum * wide(s.moment[i]) + one_of * wide(buffer));
    if (nth) buffer = 0;
    s.model[i] = narrow(wide(s.model[i]) - lr * (one_of * wide(mean[i]) + factor * wide(s.moment[i])));
  }
}

// LARS (You, Gitman, Ginsburg 2017, Algorithm 1), in fp64, each result rounded once.
void lars(const round::ServerOptimizer& o, double lr, const Layer& layer, std::span<const float> mean, Step& step) {
  OptimizerState& s = step.next;
  const std::size_t count = layer.end - layer.begin;
  const double weights = norm(std::span(s.model).subspan(layer.begin, count));
  const double decay = layer.scaled ? o.weight_decay : 0;
  const double below = norm(mean.subspan(layer.begin, count)) + decay * weights;
  const double rate = layer.scaled && weights > 0 && below > 0 ? lr * o.trust * weights / below : lr;
  for (std::size_t i = layer.begin; i < layer.end; ++i) {
    s.moment[i] = narrow(o.momentum * wide(s.moment[i]) + rate * (wide(mean[i]) + decay * wide(s.model[i])));
    s.model[i] = narrow(wide(s.model[i]) - wide(s.moment[i]));
    // One last bit of the moment, which every step passes on to the next with `momentum`, and one of the model.
    const double handed_on = 1 / (1 - std::min(o.momentum, 0.999));
    if (layer.scaled) {
      step.slack[i] = 0x1p-22 * (std::abs(wide(s.model[i])) + handed_on * std::abs(wide(s.moment[i]))) + 0x1p-140;
    }
  }
}

double power(double base, std::uint64_t exponent) {  // by repeated squaring, as is promised
  double result = 1;
  for (; exponent != 0; exponent /= 2) {
    if (exponent % 2 == 1) result *= base;
    base *= base;
  }
  return result;
}

// LAMB (You et al. 2020, Algorithm 2), every operation in fp32.
void lamb(const round::ServerOptimizer& o, double lr, std::uint64_t round, const Layer& layer,
          std::span<const float> mean, Step& step) {
  OptimizerState& s = step.next;
  const float beta1 = narrow(o.beta1), rest1 = narrow(1.0 - o.beta1), beta2 = narrow(o.beta2),
              rest2 = narrow(1.0 - o.beta2), epsilon = narrow(o.tau);
  const float decay = layer.scaled ? narrow(o.weight_decay) : 0.0F;
  const float correct1 = narrow(1.0 / (1.0 - power(o.beta1, round)));
  const float correct2 = narrow(1.0 / (1.0 - power(o.beta2, round)));
  std::vector<float> direction;
  for (std::size_t i = layer.begin; i < layer.end; ++i) {
    s.moment[i] = beta1 * s.moment[i] + rest1 * mean[i];
    s.variance[i] = beta2 * s.variance[i] + rest2 * (mean[i] * mean[i]);
    const float m = s.moment[i] * correct1;
    const float v = s.variance[i] * correct2;
    direction.push_back(m / (std::sqrt(v) + epsilon) + decay * s.model[i]);
  }
  const double weights = norm(std::span(s.model).subspan(layer.begin, layer.end - layer.begin));
  const double length = norm(direction);
  const float rate = narrow(layer.scaled && weights > 0 && length > 0 ? lr * o.trust * weights / length : lr);
  for (std::size_t i = layer.begin; i < layer.end; ++i) {
    const float change = rate * direction[i - layer.begin];
    s.model[i] = s.model[i] - change;
    if (layer.scaled) {
      step.slack[i] = 0x1p-22 * (std::abs(wide(s.model[i])) + std::abs(wide(change))) + 0x1p-140;
    }
  }
}

}  // namespace

OptimizerState first_state(const round::ServerOptimizer& optimizer, std::span<const float> model) {
  OptimizerState state;
  state.model.assign(model.begin(), model.end());
  state.moment.assign(model.size(), 0);
  const double square = optimizer.tau * optimizer.tau;
  float variance = narrow(square);  // the least fp32 value that is not below tau^2
  if (wide(variance) < square) variance = std::nextafter(variance, std::numeric_limits<float>::infinity());
  const bool from_zero = optimizer.kind == Optimizer::kLamb || optimizer.kind == Optimizer::kDelayedNesterov ||
                         optimizer.kind == Optimizer::kOnebitAdam;
  state.variance.assign(model.size(), from_zero ? 0.0F : variance);
  return state;
}

Step optimizer_step(const round::Plan& plan, const round::Schema& schema, std::uint64_t round,
                    std::uint64_t total_weight, std::span<const float> mean, const OptimizerState& before) {
  const round::ServerOptimizer& o = plan.optimizer;
  const double lr = round::learning_rate(o, round, total_weight);
  const std::vector<Layer> layers = layers_of(schema, o);
  Step step{before, {}, {}};
  OptimizerState& s = step.next;
  switch (o.kind) {
    case Optimizer::kFedAvg:
      for (std::size_t i = 0; i < mean.size(); ++i) s.model[i] = narrow(wide(s.model[i]) - lr * wide(mean[i]));
      break;
    case Optimizer::kSignSgd:
      for (std::size_t i = 0; i < mean.size(); ++i) {
        if (mean[i] != 0) s.model[i] = narrow(wide(s.model[i]) + (mean[i] < 0 ? lr : -lr));
      }
      break;
    case Optimizer::kMean: s.model.assign(mean.begin(), mean.end()); break;
    case Optimizer::kFedAvgM:
    case Optimizer::kNesterov:
      for (std::size_t i = 0; i < mean.size(); ++i) {
        s.moment[i] = narrow(o.momentum * wide(s.moment[i]) + wide(mean[i]));
        const double by =
            o.kind == Optimizer::kFedAvgM ? wide(s.moment[i]) : wide(mean[i]) + o.momentum * wide(s.moment[i]);
        s.model[i] = narrow(wide(s.model[i]) - lr * by);
      }
      break;
    case Optimizer::kFedAdagrad:
    case Optimizer::kFedAdam:
    case Optimizer::kFedYogi: adaptive(o, lr, mean, s); break;
    case Optimizer::kDelayedNesterov: delayed_nesterov(o, lr, round, mean, s); break;
    case Optimizer::kOnebitAdam: step.momentum = Onebit::of(plan)->step(o, lr, RoundId(round), mean, s); break;
    case Optimizer::kLars:
    case Optimizer::kLamb:
      step.slack.resize(mean.size(), 0);
      for (const Layer& layer : layers) {
        if (layer.averaged) continue;
        o.kind == Optimizer::kLars ? lars(o, lr, layer, mean, step) : lamb(o, lr, round, layer, mean, step);
      }
      break;
  }
  for (const Layer& layer : layers) {
    for (std::size_t i = layer.begin; layer.averaged && i < layer.end; ++i) {
      s.model[i] = narrow(wide(before.model[i]) - wide(mean[i]));
      s.moment[i] = before.moment[i];
      s.variance[i] = before.variance[i];
    }
  }
  return step;
}

}  // namespace fluvial::simulator

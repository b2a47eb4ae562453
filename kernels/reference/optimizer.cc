#include "kernels/reference/optimizer.h"

#include <cmath>
#include <cstdlib>

namespace fluvial::kernels::reference {
namespace {

double norm(const std::vector<double>& values, const Layer& layer) {
  double squares = 0;
  for (std::size_t i = 0; i < layer.count; ++i) squares += std::pow(values[layer.offset + i], 2);
  return std::sqrt(squares);
}

double sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }

void lars_layer(const OptimizerOptions& o, const std::vector<double>& d, const Layer& layer, OptimizerState& s) {
  const double w = norm(s.model, layer);
  const double g = norm(d, layer);
  const double denominator = g + o.weight_decay * w;
  const double ratio = layer.scaled && w > 0 && denominator > 0 ? o.trust * w / denominator : 1;
  for (std::size_t i = layer.offset; i < layer.offset + layer.count; ++i) {
    const double decay = layer.scaled ? o.weight_decay : 0;
    s.moment[i] = o.momentum * s.moment[i] + o.lr * ratio * (d[i] + decay * s.model[i]);
    s.model[i] -= s.moment[i];
  }
}

void lamb_layer(const OptimizerOptions& o, std::uint64_t step, const std::vector<double>& d, const Layer& layer,
                OptimizerState& s) {
  std::vector<double> r(layer.count);
  const auto t = static_cast<double>(step);
  for (std::size_t j = 0; j < layer.count; ++j) {
    const std::size_t i = layer.offset + j;
    s.moment[i] = o.beta1 * s.moment[i] + (1 - o.beta1) * d[i];
    s.variance[i] = o.beta2 * s.variance[i] + (1 - o.beta2) * d[i] * d[i];
    const double m = s.moment[i] / (1 - std::pow(o.beta1, t));
    const double v = s.variance[i] / (1 - std::pow(o.beta2, t));
    r[j] = m / (std::sqrt(v) + o.tau) + (layer.scaled ? o.weight_decay : 0) * s.model[i];
  }
  const double w = norm(s.model, layer);
  const double length = norm(r, {.offset = 0, .count = layer.count});
  const double ratio = layer.scaled && w > 0 && length > 0 ? o.trust * w / length : 1;
  for (std::size_t j = 0; j < layer.count; ++j) s.model[layer.offset + j] -= o.lr * ratio * r[j];
}

// The paper counts from 0: t + 1 is the step here.
void delayed_nesterov(const OptimizerOptions& o, std::uint64_t step, const std::vector<double>& d, OptimizerState& s) {
  const auto n = static_cast<double>(o.every);
  for (std::size_t i = 0; i < d.size(); ++i) {
    double& buffer = s.variance[i];
    buffer += d[i];
    if (step % o.every == 0) {
      s.moment[i] = o.momentum * s.moment[i] + buffer / n;
      s.model[i] -= o.lr * ((1 - o.c * n + o.c) * o.momentum * s.moment[i] + d[i] / n);
      buffer = 0;
    } else {
      s.model[i] -= o.lr * (o.c * o.momentum * s.moment[i] + d[i] / n);
    }
  }
}

// The optimizers that treat every coordinate and every step alike.
void coordinate(std::string_view name, const OptimizerOptions& o, double d, double& x, double& m, double& v) {
  if (name == "fedavg") {
    x -= o.lr * d;
  } else if (name == "mean") {
    x = d;
  } else if (name == "signsgd") {
    x -= o.lr * sign(d);
  } else if (name == "fedavgm") {
    m = o.momentum * m + d;
    x -= o.lr * m;
  } else if (name == "nesterov") {
    m = o.momentum * m + d;
    x -= o.lr * (d + o.momentum * m);
  } else {
    m = o.beta1 * m + (1 - o.beta1) * d;
    if (name == "fedadagrad") {
      v += d * d;
    } else if (name == "fedadam") {
      v = o.beta2 * v + (1 - o.beta2) * d * d;
    } else if (name == "fedyogi") {
      v -= (1 - o.beta2) * d * d * sign(v - d * d);
    } else {
      std::abort();
    }
    x -= o.lr * m / (std::sqrt(v) + o.tau);
  }
}

}  // namespace

void optimizer_step(std::string_view name, const OptimizerOptions& options, std::uint64_t step,
                    const std::vector<double>& d, const std::vector<Layer>& layers, OptimizerState& state) {
  if (name == "lars") {
    for (const Layer& layer : layers) lars_layer(options, d, layer, state);
  } else if (name == "lamb") {
    for (const Layer& layer : layers) lamb_layer(options, step, d, layer, state);
  } else if (name == "delayed_nesterov") {
    delayed_nesterov(options, step, d, state);
  } else {
    for (std::size_t i = 0; i < d.size(); ++i) {
      coordinate(name, options, d[i], state.model[i], state.moment[i], state.variance[i]);
    }
  }
}

}  // namespace fluvial::kernels::reference

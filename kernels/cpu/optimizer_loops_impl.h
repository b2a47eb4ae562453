// The loops of optimizer_loops.h, once, for each_target.h.

#define FLUVIAL_RESTRICT __restrict__

namespace fluvial::kernels::cpu::FLUVIAL_TARGET {
namespace {

template <typename NextVariance>
inline __attribute__((always_inline)) void adaptive(const ops::AdaptiveFactors& factors,
                                                    const float* FLUVIAL_RESTRICT mean, std::size_t n,
                                                    float* FLUVIAL_RESTRICT moment, float* FLUVIAL_RESTRICT variance,
                                                    float* FLUVIAL_RESTRICT model, NextVariance next_variance) {
  const ops::AdaptiveFactors f = factors;
  for (std::size_t i = 0; i < n; ++i) {
    const float m = ops::moment_step(f, moment[i], mean[i]);
    const float v = next_variance(f, variance[i], mean[i]);
    moment[i] = m;
    variance[i] = v;
    model[i] = ops::adaptive_step(f, m, v, model[i]);
  }
}

void adagrad(const ops::AdaptiveFactors& f, const float* mean, std::size_t n, float* moment, float* variance,
             float* model) {
  adaptive(f, mean, n, moment, variance, model,
           [](const ops::AdaptiveFactors& g, float v, float d)
               __attribute__((always_inline)) { return ops::adagrad_variance(g, v, d); });
}

void adam(const ops::AdaptiveFactors& f, const float* mean, std::size_t n, float* moment, float* variance,
          float* model) {
  adaptive(f, mean, n, moment, variance, model,
           [](const ops::AdaptiveFactors& g, float v, float d)
               __attribute__((always_inline)) { return ops::adam_variance(g, v, d); });
}

void yogi(const ops::AdaptiveFactors& f, const float* mean, std::size_t n, float* moment, float* variance,
          float* model) {
  adaptive(f, mean, n, moment, variance, model,
           [](const ops::AdaptiveFactors& g, float v, float d)
               __attribute__((always_inline)) { return ops::yogi_variance(g, v, d); });
}

void nesterov(double lr, double momentum, const float* FLUVIAL_RESTRICT mean, std::size_t n,
              float* FLUVIAL_RESTRICT moment, float* FLUVIAL_RESTRICT model) {
  for (std::size_t i = 0; i < n; ++i) {
    const float m = ops::momentum_step(momentum, moment[i], mean[i]);
    moment[i] = m;
    model[i] = ops::nesterov_step(lr, momentum, m, mean[i], model[i]);
  }
}

void signsgd(double lr, const float* FLUVIAL_RESTRICT mean, std::size_t n, float* FLUVIAL_RESTRICT model) {
  for (std::size_t i = 0; i < n; ++i) model[i] = ops::sgd_step(lr, ops::sign_of(mean[i]), model[i]);
}

void delayed_nesterov(const ops::DelayedNesterovFactors& factors, const float* FLUVIAL_RESTRICT mean, std::size_t n,
                      const float* FLUVIAL_RESTRICT moment, float* FLUVIAL_RESTRICT buffer,
                      float* FLUVIAL_RESTRICT model) {
  const ops::DelayedNesterovFactors f = factors;
  for (std::size_t i = 0; i < n; ++i) {
    buffer[i] = ops::delayed_buffer(buffer[i], mean[i]);
    model[i] = ops::delayed_step(f, moment[i], mean[i], model[i]);
  }
}

void delayed_nesterov_nth(const ops::DelayedNesterovFactors& factors, const float* FLUVIAL_RESTRICT mean, std::size_t n,
                          float* FLUVIAL_RESTRICT moment, float* FLUVIAL_RESTRICT buffer,
                          float* FLUVIAL_RESTRICT model) {
  const ops::DelayedNesterovFactors f = factors;
  for (std::size_t i = 0; i < n; ++i) {
    const float m = ops::delayed_moment(f, moment[i], ops::delayed_buffer(buffer[i], mean[i]));
    moment[i] = m;
    buffer[i] = 0;
    model[i] = ops::delayed_step(f, m, mean[i], model[i]);
  }
}

void lars(double momentum, double rate, double weight_decay, const float* FLUVIAL_RESTRICT mean, std::size_t n,
          float* FLUVIAL_RESTRICT moment, float* FLUVIAL_RESTRICT model) {
  for (std::size_t i = 0; i < n; ++i) {
    const float m = ops::lars_moment(momentum, rate, weight_decay, moment[i], mean[i], model[i]);
    moment[i] = m;
    model[i] = ops::sgd_step(1.0, m, model[i]);
  }
}

void lamb(const ops::LambFactors& factors, const float* FLUVIAL_RESTRICT mean, std::size_t n,
          float* FLUVIAL_RESTRICT moment, float* FLUVIAL_RESTRICT variance, float* FLUVIAL_RESTRICT model) {
  const ops::LambFactors f = factors;
  for (std::size_t i = 0; i < n; ++i) {
    const float m = ops::moment_step(f.adaptive, moment[i], mean[i]);
    const float v = ops::adam_variance(f.adaptive, variance[i], mean[i]);
    moment[i] = m;
    variance[i] = v;
    model[i] = ops::lamb_step(f, m, v, model[i]);
  }
}

void lamb_direction_squares(const ops::LambFactors& factors, const float* FLUVIAL_RESTRICT mean,
                            const float* FLUVIAL_RESTRICT moment, const float* FLUVIAL_RESTRICT variance,
                            const float* FLUVIAL_RESTRICT model, std::size_t n, double* FLUVIAL_RESTRICT lanes) {
  const ops::LambFactors f = factors;
  constexpr std::size_t kPiece = 256;  // a multiple of the lanes
  float direction[kPiece];
  double squares[kSquareLanes];
  for (std::size_t lane = 0; lane < kSquareLanes; ++lane) squares[lane] = lanes[lane];
  for (std::size_t at = 0; at < n; at += kPiece) {
    const std::size_t size = n - at < kPiece ? n - at : kPiece;
    for (std::size_t i = 0; i < size; ++i) {
      const float m = ops::moment_step(f.adaptive, moment[at + i], mean[at + i]);
      const float v = ops::adam_variance(f.adaptive, variance[at + i], mean[at + i]);
      direction[i] = ops::lamb_direction(f, m, v, model[at + i]);
    }
    std::size_t i = 0;
    for (; i + kSquareLanes <= size; i += kSquareLanes) {
      for (std::size_t lane = 0; lane < kSquareLanes; ++lane) {
        const double wide = static_cast<double>(direction[i + lane]);
        squares[lane] += wide * wide;
      }
    }
    for (std::size_t lane = 0; i < size; ++i, ++lane) {
      const double wide = static_cast<double>(direction[i]);
      squares[lane] += wide * wide;
    }
  }
  for (std::size_t lane = 0; lane < kSquareLanes; ++lane) lanes[lane] = squares[lane];
}

constexpr OptimizerLoops kOptimizerTable = {
    .adagrad = adagrad,
    .adam = adam,
    .yogi = yogi,
    .signsgd = signsgd,
    .nesterov = nesterov,
    .delayed_nesterov = delayed_nesterov,
    .delayed_nesterov_nth = delayed_nesterov_nth,
    .lars = lars,
    .lamb = lamb,
    .lamb_direction_squares = lamb_direction_squares,
};

}  // namespace

const OptimizerLoops& optimizer_loops_table() { return kOptimizerTable; }

}  // namespace fluvial::kernels::cpu::FLUVIAL_TARGET

#undef FLUVIAL_RESTRICT

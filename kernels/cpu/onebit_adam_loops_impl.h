// The loops of 1-bit Adam, once, for each_target.h.

#define FLUVIAL_RESTRICT __restrict__

namespace fluvial::kernels::cpu::FLUVIAL_TARGET {
namespace {

void fold(const ops::OnebitFactors& factors, const float* FLUVIAL_RESTRICT mean, float* FLUVIAL_RESTRICT moment,
          std::size_t n) {
  const ops::OnebitFactors by = factors;
  for (std::size_t i = 0; i < n; ++i) moment[i] = ops::onebit_fold(by, mean[i], moment[i]);
}

void warm_up(const ops::OnebitFactors& factors, double lr, const float* FLUVIAL_RESTRICT mean, std::size_t n,
             float* FLUVIAL_RESTRICT momentum, float* FLUVIAL_RESTRICT variance, float* FLUVIAL_RESTRICT model) {
  const ops::OnebitFactors by = factors;
  for (std::size_t i = 0; i < n; ++i) {
    const float m = ops::moment_step(by.beta1, by.rest1, momentum[i], static_cast<double>(mean[i]));
    const float v = ops::moment_step(by.beta2, by.rest2, variance[i], ops::square_of(mean[i]));
    momentum[i] = m;
    variance[i] = v;
    model[i] = ops::adam_step(lr, by.tau, m, v, model[i]);
  }
}

void apply(const ops::OnebitFactors& factors, double lr, const float* FLUVIAL_RESTRICT momentum,
           const float* FLUVIAL_RESTRICT variance, std::size_t n, float* FLUVIAL_RESTRICT model) {
  const float tau = factors.tau;
  for (std::size_t i = 0; i < n; ++i) model[i] = ops::adam_step(lr, tau, momentum[i], variance[i], model[i]);
}

void exchange(double k, const float* FLUVIAL_RESTRICT momentum, std::size_t n, float* FLUVIAL_RESTRICT lent,
              float* FLUVIAL_RESTRICT residual) {
  for (std::size_t i = 0; i < n; ++i) {
    const float now = ops::onebit_lent(k, momentum[i]);
    residual[i] = ops::onebit_exchange(residual[i], lent[i], now);
    lent[i] = now;
  }
}

constexpr OnebitAdamLoops kTable = {.fold = fold, .warm_up = warm_up, .apply = apply, .exchange = exchange};

}  // namespace

const OnebitAdamLoops& onebit_adam_loops_table() { return kTable; }

}  // namespace fluvial::kernels::cpu::FLUVIAL_TARGET

#undef FLUVIAL_RESTRICT

// The adaptive server optimizers and Nesterov's: optimizer.h.
#include "kernels/cuda/backend.h"
#include "kernels/cuda/packs.h"
#include "kernels/ops/optimizer.h"
#include "kernels/ops/update.h"

namespace fluvial::kernels::FLUVIAL_GPU {
namespace {

// A static function: a pointer to one cannot be taken on the host for the device.
struct Adagrad {
  __device__ static float variance(const ops::AdaptiveFactors& factors, float variance, float mean) {
    return ops::adagrad_variance(factors, variance, mean);
  }
};
struct Adam {
  __device__ static float variance(const ops::AdaptiveFactors& factors, float variance, float mean) {
    return ops::adam_variance(factors, variance, mean);
  }
};
struct Yogi {
  __device__ static float variance(const ops::AdaptiveFactors& factors, float variance, float mean) {
    return ops::yogi_variance(factors, variance, mean);
  }
};

template <typename Rule>
struct AdaptiveOp {
  ops::AdaptiveFactors factors;
  const float* mean;
  float* moment;
  float* variance;
  float* model;

  template <int kCount>
  __device__ void run(At<kCount> at) const {
    const Pack<float, kCount> means = at.load(mean);
    Pack<float, kCount> moments = at.load(moment);
    Pack<float, kCount> variances = at.load(variance);
    Pack<float, kCount> models = at.load(model);
    for (int i = 0; i < kCount; ++i) {
      moments.v[i] = ops::moment_step(factors, moments.v[i], means.v[i]);
      variances.v[i] = Rule::variance(factors, variances.v[i], means.v[i]);
      models.v[i] = ops::adaptive_step(factors, moments.v[i], variances.v[i], models.v[i]);
    }
    at.store(moment, moments);
    at.store(variance, variances);
    at.store(model, models);
  }
};

struct NesterovOp {
  double lr;
  double momentum;
  const float* mean;
  float* moment;
  float* model;

  template <int kCount>
  __device__ void run(At<kCount> at) const {
    const Pack<float, kCount> means = at.load(mean);
    Pack<float, kCount> moments = at.load(moment);
    Pack<float, kCount> models = at.load(model);
    for (int i = 0; i < kCount; ++i) {
      moments.v[i] = ops::momentum_step(momentum, moments.v[i], means.v[i]);
      models.v[i] = ops::nesterov_step(lr, momentum, moments.v[i], means.v[i], models.v[i]);
    }
    at.store(moment, moments);
    at.store(model, models);
  }
};

ops::AdaptiveFactors factors_of(const AdaptiveOptions& options) {
  const auto narrow = [](double value) { return static_cast<float>(value); };
  return {.lr = narrow(options.lr),
          .beta1 = narrow(options.beta1),
          .one_minus_beta1 = narrow(1.0 - options.beta1),
          .beta2 = narrow(options.beta2),
          .one_minus_beta2 = narrow(1.0 - options.beta2),
          .tau = narrow(options.tau)};
}

}  // namespace

Status launch_adaptive(AdaptiveRule rule, const AdaptiveOptions& options, DeviceSpan<const float> mean,
                       DeviceSpan<float> moment, DeviceSpan<float> variance, DeviceSpan<float> model, Stream& stream) {
  const bool by_four =
      fits_four(mean.data()) && fits_four(moment.data()) && fits_four(variance.data()) && fits_four(model.data());
  const auto with = [&]<typename Rule>(Rule) {
    return launch_each(AdaptiveOp<Rule>{factors_of(options), mean.data(), moment.data(), variance.data(), model.data()},
                       model.size(), by_four, stream);
  };
  switch (rule) {
    case AdaptiveRule::kAdagrad: return with(Adagrad{});
    case AdaptiveRule::kAdam: return with(Adam{});
    case AdaptiveRule::kYogi: return with(Yogi{});
  }
  return Error{Code::kInvalidArgument, "no such rule"};
}

Status launch_nesterov(double lr, double momentum, DeviceSpan<const float> mean, DeviceSpan<float> moment,
                       DeviceSpan<float> model, Stream& stream) {
  const bool by_four = fits_four(mean.data()) && fits_four(moment.data()) && fits_four(model.data());
  return launch_each(NesterovOp{lr, momentum, mean.data(), moment.data(), model.data()}, model.size(), by_four, stream);
}

}  // namespace fluvial::kernels::FLUVIAL_GPU

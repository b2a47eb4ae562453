// The adaptive server optimizers and delayed Nesterov: optimizer.h.
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

template <bool kNth>
struct DelayedNesterovOp {
  ops::DelayedNesterovFactors factors;
  const float* mean;
  float* moment;
  float* buffer;
  float* model;

  template <int kCount>
  __device__ void run(At<kCount> at) const {
    const Pack<float, kCount> means = at.load(mean);
    Pack<float, kCount> moments = at.load(moment);
    Pack<float, kCount> buffers = at.load(buffer);
    Pack<float, kCount> models = at.load(model);
    for (int i = 0; i < kCount; ++i) {
      buffers.v[i] = ops::delayed_buffer(buffers.v[i], means.v[i]);
      if (kNth) moments.v[i] = ops::delayed_moment(factors, moments.v[i], buffers.v[i]);
      if (kNth) buffers.v[i] = 0;
      models.v[i] = ops::delayed_step(factors, moments.v[i], means.v[i], models.v[i]);
    }
    if (kNth) at.store(moment, moments);
    at.store(buffer, buffers);
    at.store(model, models);
  }
};

}  // namespace

Status launch_adaptive(AdaptiveRule rule, const AdaptiveOptions& options, DeviceSpan<const float> mean,
                       DeviceSpan<float> moment, DeviceSpan<float> variance, DeviceSpan<float> model, Stream& stream) {
  const bool by_four =
      fits_four(mean.data()) && fits_four(moment.data()) && fits_four(variance.data()) && fits_four(model.data());
  const ops::AdaptiveFactors factors = ops::adaptive_factors(options.lr, options.beta1, options.beta2, options.tau);
  const auto with = [&]<typename Rule>(Rule) {
    return launch_each(AdaptiveOp<Rule>{factors, mean.data(), moment.data(), variance.data(), model.data()},
                       model.size(), by_four, stream);
  };
  switch (rule) {
    case AdaptiveRule::kAdagrad: return with(Adagrad{});
    case AdaptiveRule::kAdam: return with(Adam{});
    case AdaptiveRule::kYogi: return with(Yogi{});
  }
  return Error{Code::kInvalidArgument, "no such rule"};
}

Status launch_delayed_nesterov(const DelayedNesterovOptions& options, DeviceSpan<const float> mean,
                               DeviceSpan<float> moment, DeviceSpan<float> buffer, DeviceSpan<float> model,
                               Stream& stream) {
  const bool by_four =
      fits_four(mean.data()) && fits_four(moment.data()) && fits_four(buffer.data()) && fits_four(model.data());
  const auto with = [&](auto op) { return launch_each(op, model.size(), by_four, stream); };
  const ops::DelayedNesterovFactors factors = delayed_nesterov_factors(options);
  return is_nth(options)
             ? with(DelayedNesterovOp<true>{factors, mean.data(), moment.data(), buffer.data(), model.data()})
             : with(DelayedNesterovOp<false>{factors, mean.data(), moment.data(), buffer.data(), model.data()});
}

}  // namespace fluvial::kernels::FLUVIAL_GPU

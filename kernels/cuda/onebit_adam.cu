// 1-bit Adam, a coordinate at a time: onebit_adam.h.
#include "kernels/cuda/backend.h"
#include "kernels/cuda/packs.h"

namespace fluvial::kernels::FLUVIAL_GPU {
namespace {

struct OnebitFoldOp {
  ops::OnebitFactors factors;
  const float* gradient;
  const float* momentum;
  const float* residual;
  float* out;

  template <int kCount>
  __device__ void run(At<kCount> at) const {
    Pack<float, kCount> values = at.load(gradient);
    const Pack<float, kCount> moments = at.load(momentum);
    const Pack<float, kCount> residuals = at.load(residual);
    for (int i = 0; i < kCount; ++i) {
      values.v[i] = ops::onebit_fold(factors, values.v[i], moments.v[i], residuals.v[i]);
    }
    at.store(out, values);
  }
};

struct WarmUpOp {
  ops::OnebitFactors factors;
  double lr;
  const float* mean;
  float* momentum;
  float* variance;
  float* model;

  template <int kCount>
  __device__ void run(At<kCount> at) const {
    const Pack<float, kCount> means = at.load(mean);
    Pack<float, kCount> moments = at.load(momentum);
    Pack<float, kCount> variances = at.load(variance);
    Pack<float, kCount> models = at.load(model);
    for (int i = 0; i < kCount; ++i) {
      moments.v[i] = ops::moment_step(factors.beta1, factors.rest1, moments.v[i], static_cast<double>(means.v[i]));
      variances.v[i] = ops::moment_step(factors.beta2, factors.rest2, variances.v[i], ops::square_of(means.v[i]));
      models.v[i] = ops::adam_step(lr, factors.eps, moments.v[i], variances.v[i], models.v[i]);
    }
    at.store(momentum, moments);
    at.store(variance, variances);
    at.store(model, models);
  }
};

struct AdamStepOp {
  float eps;
  double lr;
  const float* momentum;
  const float* variance;
  float* model;

  template <int kCount>
  __device__ void run(At<kCount> at) const {
    const Pack<float, kCount> moments = at.load(momentum);
    const Pack<float, kCount> variances = at.load(variance);
    Pack<float, kCount> models = at.load(model);
    for (int i = 0; i < kCount; ++i) {
      models.v[i] = ops::adam_step(lr, eps, moments.v[i], variances.v[i], models.v[i]);
    }
    at.store(model, models);
  }
};

struct RaiseOp {
  float least;
  float* variance;

  template <int kCount>
  __device__ void run(At<kCount> at) const {
    Pack<float, kCount> variances = at.load(variance);
    for (float& value : variances.v) value = ops::raised(least, value);
    at.store(variance, variances);
  }
};

}  // namespace

Status launch_onebit_fold(const ops::OnebitFactors& factors, DeviceSpan<const float> gradient,
                          DeviceSpan<const float> momentum, DeviceSpan<const float> residual, DeviceSpan<float> out,
                          Stream& stream) {
  const bool by_four =
      fits_four(gradient.data()) && fits_four(momentum.data()) && fits_four(residual.data()) && fits_four(out.data());
  return launch_each(OnebitFoldOp{factors, gradient.data(), momentum.data(), residual.data(), out.data()}, out.size(),
                     by_four, stream);
}

Status launch_onebit_warm_up(const ops::OnebitFactors& factors, double lr, DeviceSpan<const float> mean,
                             DeviceSpan<float> momentum, DeviceSpan<float> variance, DeviceSpan<float> model,
                             Stream& stream) {
  const bool by_four =
      fits_four(mean.data()) && fits_four(momentum.data()) && fits_four(variance.data()) && fits_four(model.data());
  return launch_each(WarmUpOp{factors, lr, mean.data(), momentum.data(), variance.data(), model.data()}, model.size(),
                     by_four, stream);
}

Status launch_onebit_apply(const ops::OnebitFactors& factors, double lr, DeviceSpan<const float> momentum,
                           DeviceSpan<const float> variance, DeviceSpan<float> model, Stream& stream) {
  const bool by_four = fits_four(momentum.data()) && fits_four(variance.data()) && fits_four(model.data());
  return launch_each(AdamStepOp{factors.eps, lr, momentum.data(), variance.data(), model.data()}, model.size(), by_four,
                     stream);
}

Status launch_onebit_raise(float least, DeviceSpan<float> variance, Stream& stream) {
  return launch_each(RaiseOp{least, variance.data()}, variance.size(), fits_four(variance.data()), stream);
}

}  // namespace fluvial::kernels::FLUVIAL_GPU

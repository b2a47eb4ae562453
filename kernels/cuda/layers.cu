// LARS and LAMB: optimizer.h.
#include "kernels/cuda/backend.h"
#include "kernels/cuda/packs.h"
#include "kernels/cuda/squares.h"
#include "kernels/ops/update.h"

namespace fluvial::kernels::FLUVIAL_GPU {
namespace {

struct LarsOp {
  LarsRates rates;
  const float* mean;
  float* moment;
  float* model;

  template <int kCount>
  __device__ void run(At<kCount> at) const {
    const Pack<float, kCount> means = at.load(mean);
    Pack<float, kCount> moments = at.load(moment);
    Pack<float, kCount> models = at.load(model);
    for (int i = 0; i < kCount; ++i) {
      moments.v[i] =
          ops::lars_moment(rates.momentum, rates.rate, rates.weight_decay, moments.v[i], means.v[i], models.v[i]);
      models.v[i] = ops::sgd_step(1.0, moments.v[i], models.v[i]);
    }
    at.store(moment, moments);
    at.store(model, models);
  }
};

struct LambOp {
  ops::LambFactors factors;
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
      moments.v[i] = ops::moment_step(factors.adaptive, moments.v[i], means.v[i]);
      variances.v[i] = ops::adam_variance(factors.adaptive, variances.v[i], means.v[i]);
      models.v[i] = ops::lamb_step(factors, moments.v[i], variances.v[i], models.v[i]);
    }
    at.store(moment, moments);
    at.store(variance, variances);
    at.store(model, models);
  }
};

struct LambDirection {
  ops::LambFactors factors;
  const float* mean;
  const float* moment;
  const float* variance;
  const float* model;
  __device__ float at(std::uint64_t index) const {
    const float m = ops::moment_step(factors.adaptive, moment[index], mean[index]);
    const float v = ops::adam_variance(factors.adaptive, variance[index], mean[index]);
    return ops::lamb_direction(factors, m, v, model[index]);
  }
};

}  // namespace

Status launch_lars(const LarsRates& rates, DeviceSpan<const float> mean, DeviceSpan<float> moment,
                   DeviceSpan<float> model, Stream& stream) {
  const bool by_four = fits_four(mean.data()) && fits_four(moment.data()) && fits_four(model.data());
  return launch_each(LarsOp{rates, mean.data(), moment.data(), model.data()}, model.size(), by_four, stream);
}

Status launch_lamb(const ops::LambFactors& factors, DeviceSpan<const float> mean, DeviceSpan<float> moment,
                   DeviceSpan<float> variance, DeviceSpan<float> model, Stream& stream) {
  const bool by_four =
      fits_four(mean.data()) && fits_four(moment.data()) && fits_four(variance.data()) && fits_four(model.data());
  return launch_each(LambOp{factors, mean.data(), moment.data(), variance.data(), model.data()}, model.size(), by_four,
                     stream);
}

Status launch_squares_of(DeviceSpan<const float> values, DeviceSpan<double> lanes, DeviceSpan<std::byte> workspace,
                         Stream& stream) {
  return launch_squares(VectorAt{values.data()}, values.size(), lanes, workspace, stream);
}

Status launch_lamb_squares(const ops::LambFactors& factors, DeviceSpan<const float> mean,
                           DeviceSpan<const float> moment, DeviceSpan<const float> variance,
                           DeviceSpan<const float> model, DeviceSpan<double> lanes, DeviceSpan<std::byte> workspace,
                           Stream& stream) {
  return launch_squares(LambDirection{factors, mean.data(), moment.data(), variance.data(), model.data()}, model.size(),
                        lanes, workspace, stream);
}

}  // namespace fluvial::kernels::FLUVIAL_GPU

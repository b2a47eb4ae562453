// device_vector.h's operations.
#include <algorithm>
#include <span>

#include "kernels/cuda/backend.h"
#include "kernels/cuda/dense.h"
#include "kernels/cuda/packs.h"
#include "kernels/cuda/screen.h"
#include "kernels/ops/fixed.h"
#include "kernels/ops/mean.h"
#include "kernels/ops/optimizer.h"
#include "kernels/ops/update.h"

namespace fluvial::kernels::FLUVIAL_GPU {
namespace {

struct Buffers {
  const float* x[kReduceInputsMax];
  int count;
};

// The loads of eight buffers are under way at a time; the additions keep their order.
struct ReduceOp {
  Buffers buffers;
  float* out;

  template <int kCount>
  __device__ void run(At<kCount> at) const {
    constexpr int kAhead = 8;
    Pack<float, kCount> sum = at.load(buffers.x[0]);
    int k = 1;
    for (; k + kAhead <= buffers.count; k += kAhead) {
      Pack<float, kCount> next[kAhead];
      FLUVIAL_UNROLL
      for (int j = 0; j < kAhead; ++j) next[j] = at.load(buffers.x[k + j]);
      FLUVIAL_UNROLL
      for (int j = 0; j < kAhead; ++j) {
        for (int i = 0; i < kCount; ++i) sum.v[i] += next[j].v[i];
      }
    }
    add_rest(at, k, &sum);
    at.store(out, sum);
  }

  template <int kCount>
  __device__ void add_rest(At<kCount> at, int k, Pack<float, kCount>* sum) const {
    constexpr int kAhead = 7;
    Pack<float, kCount> next[kAhead];
    FLUVIAL_UNROLL
    for (int j = 0; j < kAhead; ++j) {
      if (k + j < buffers.count) next[j] = at.load(buffers.x[k + j]);
    }
    FLUVIAL_UNROLL
    for (int j = 0; j < kAhead; ++j) {
      if (k + j >= buffers.count) continue;
      for (int i = 0; i < kCount; ++i) sum->v[i] += next[j].v[i];
    }
  }
};

struct ReduceMeanOp {
  Buffers buffers;
  float* out;

  template <int kCount>
  __device__ void run(At<kCount> at) const {
    double sums[kCount] = {};
    for (int k = 0; k < buffers.count; ++k) {
      const Pack<float, kCount> next = at.load(buffers.x[k]);
      for (int i = 0; i < kCount; ++i) {
        const double wide = static_cast<double>(next.v[i]);
        sums[i] = k == 0 ? wide : sums[i] + wide;
      }
    }
    Pack<float, kCount> means;
    for (int i = 0; i < kCount; ++i) means.v[i] = static_cast<float>(sums[i] / static_cast<double>(buffers.count));
    at.store(out, means);
  }
};

struct WeightedSumOp {
  Buffers buffers;
  double coefficients[kReduceInputsMax];
  double divisor;
  float* out;

  template <int kCount>
  __device__ void run(At<kCount> at) const {
    double sums[kCount] = {};
    for (int k = 0; k < buffers.count; ++k) {
      const Pack<float, kCount> next = at.load(buffers.x[k]);
      for (int i = 0; i < kCount; ++i) sums[i] += static_cast<double>(next.v[i]) * coefficients[k];
    }
    Pack<float, kCount> outs;
    for (int i = 0; i < kCount; ++i) outs.v[i] = static_cast<float>(sums[i] / divisor);
    at.store(out, outs);
  }
};

struct AddSumsOp {
  const std::int64_t* add;
  std::int64_t* sum;

  template <typename Where>
  __device__ void run(Where at) const {
    const Pack<std::int64_t, Where::count> values = at.load(add);
    Pack<std::int64_t, Where::count> sums = at.load(sum);
    for (int i = 0; i < Where::count; ++i) sums.v[i] = ops::wrapping_add(sums.v[i], values.v[i]);
    at.store(sum, sums);
  }
};

struct MeanOp {
  const std::int64_t* sum;
  double inverse_scale;
  double total_weight;
  double inverse_weight;
  float* out;

  template <typename Where>
  __device__ void run(Where at) const {
    const Pack<std::int64_t, Where::count> sums = at.load(sum);
    Pack<float, Where::count> means;
    for (int i = 0; i < Where::count; ++i) {
      means.v[i] = ops::mean_by_inverse(sums.v[i], inverse_scale, total_weight, inverse_weight);
    }
    at.store(out, means);
  }
};

struct PseudoGradientOp {
  const float* base;
  const float* local;
  const float* residual;  // or null: all zero
  float* out;

  template <int kCount>
  __device__ void run(At<kCount> at) const {
    const Pack<float, kCount> bases = at.load(base);
    const Pack<float, kCount> locals = at.load(local);
    Pack<float, kCount> residuals{};
    if (residual != nullptr) residuals = at.load(residual);
    Pack<float, kCount> outs;
    for (int i = 0; i < kCount; ++i) outs.v[i] = ops::pseudo_gradient(bases.v[i], locals.v[i], residuals.v[i]);
    at.store(out, outs);
  }
};

struct FoldOp {
  const float* update;
  const float* residual;  // or null: all zero
  float* out;

  template <int kCount>
  __device__ void run(At<kCount> at) const {
    Pack<float, kCount> values = at.load(update);
    Pack<float, kCount> residuals{};
    if (residual != nullptr) residuals = at.load(residual);
    for (int i = 0; i < kCount; ++i) values.v[i] = ops::folded(values.v[i], residuals.v[i]);
    at.store(out, values);
  }
};

struct SgdOp {
  double lr;
  const float* mean;
  float* model;

  template <int kCount>
  __device__ void run(At<kCount> at) const {
    const Pack<float, kCount> means = at.load(mean);
    Pack<float, kCount> models = at.load(model);
    for (int i = 0; i < kCount; ++i) models.v[i] = ops::sgd_step(lr, means.v[i], models.v[i]);
    at.store(model, models);
  }
};

// The moment takes the mean in; then the model takes Nesterov's step, or the moment's.
template <bool kNesterov>
struct MomentumOp {
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
      models.v[i] = kNesterov ? ops::nesterov_step(lr, momentum, moments.v[i], means.v[i], models.v[i])
                              : ops::sgd_step(lr, moments.v[i], models.v[i]);
    }
    at.store(moment, moments);
    at.store(model, models);
  }
};

struct VectorSource {
  const float* x;
  __device__ std::uint64_t parts() const { return 0; }
  __device__ bool well_formed(std::uint64_t) const { return true; }
  template <int kCount>
  __device__ bool fine(At<kCount>) const {
    return true;
  }
  template <int kCount>
  __device__ Pack<float, kCount> value(At<kCount> at) const {
    return at.load(x);
  }
};

template <typename Op>
Status launch_reduce(Op op, std::span<const DeviceSpan<const float>> buffers, DeviceSpan<float> out, Stream& stream) {
  op.out = out.data();
  bool by_four = fits_four(out.data());
  op.buffers.count = static_cast<int>(buffers.size());
  for (std::size_t k = 0; k < buffers.size(); ++k) {
    op.buffers.x[k] = buffers[k].data();
    by_four = by_four && fits_four(buffers[k].data());
  }
  return launch_each(op, out.size(), by_four, stream);
}

template <bool kNesterov>
Status launch_momentum(double lr, double momentum, DeviceSpan<const float> mean, DeviceSpan<float> moment,
                       DeviceSpan<float> model, Stream& stream) {
  const bool by_four = fits_four(mean.data()) && fits_four(moment.data()) && fits_four(model.data());
  return launch_each(MomentumOp<kNesterov>{lr, momentum, mean.data(), moment.data(), model.data()}, model.size(),
                     by_four, stream);
}

class GpuVectorOps final : public DeviceVectorOps {
 public:
  Status reduce(std::span<const DeviceSpan<const float>> buffers, DeviceSpan<float> out, Stream& stream) override {
    return launch_reduce(ReduceOp{}, buffers, out, stream);
  }
  Status reduce_mean(std::span<const DeviceSpan<const float>> buffers, DeviceSpan<float> out, Stream& stream) override {
    return launch_reduce(ReduceMeanOp{}, buffers, out, stream);
  }
  Status weighted_sum(std::span<const DeviceSpan<const float>> vectors, std::span<const double> coefficients,
                      double divisor, DeviceSpan<float> out, Stream& stream) override {
    WeightedSumOp op{};
    std::copy(coefficients.begin(), coefficients.end(), op.coefficients);
    op.divisor = divisor;
    return launch_reduce(op, vectors, out, stream);
  }
  Status screen(DeviceSpan<const float> values, std::uint64_t first_value, DeviceSpan<std::byte> workspace,
                ChunkOutcome* outcome, Stream& stream) override {
    return launch_screen(VectorSource{values.data()}, values.size(), first_value, fits_four(values.data()), workspace,
                         outcome, stream);
  }
  Status add_scaled(DeviceSpan<const float> x, float weight, DeviceSpan<float> sum, Stream& stream) override {
    return launch_each(AddOp<VectorSource>{{x.data()}, weight, sum.data()}, sum.size(),
                       fits_four(x.data()) && fits_four(sum.data()), stream);
  }
  Status add_sums(DeviceSpan<const std::int64_t> add, DeviceSpan<std::int64_t> sum, Stream& stream) override {
    return launch_pairs(AddSumsOp{add.data(), sum.data()}, sum.size(), fits_four(add.data()) && fits_four(sum.data()),
                        stream);
  }
  Status mean_of_sums(DeviceSpan<const std::int64_t> sum, double inverse_scale, double total_weight,
                      DeviceSpan<float> out, Stream& stream) override {
    return launch_pairs(MeanOp{sum.data(), inverse_scale, total_weight, 1 / total_weight, out.data()}, out.size(),
                        fits_four(sum.data()) && fits_four(out.data()), stream);
  }
  Status pseudo_gradient(DeviceSpan<const float> base, DeviceSpan<const float> local, DeviceSpan<const float> residual,
                         DeviceSpan<float> out, Stream& stream) override {
    const bool by_four = fits_four(base.data()) && fits_four(local.data()) && fits_four(out.data()) &&
                         (residual.empty() || fits_four(residual.data()));
    return launch_each(
        PseudoGradientOp{base.data(), local.data(), residual.empty() ? nullptr : residual.data(), out.data()},
        out.size(), by_four, stream);
  }
  Status sgd(double lr, DeviceSpan<const float> mean, DeviceSpan<float> model, Stream& stream) override {
    return launch_each(SgdOp{lr, mean.data(), model.data()}, model.size(),
                       fits_four(mean.data()) && fits_four(model.data()), stream);
  }
  Status momentum(double lr, double momentum, DeviceSpan<const float> mean, DeviceSpan<float> moment,
                  DeviceSpan<float> model, Stream& stream) override {
    return launch_momentum<false>(lr, momentum, mean, moment, model, stream);
  }
  Status adaptive(AdaptiveRule rule, const AdaptiveOptions& options, DeviceSpan<const float> mean,
                  DeviceSpan<float> moment, DeviceSpan<float> variance, DeviceSpan<float> model,
                  Stream& stream) override {
    return launch_adaptive(rule, options, mean, moment, variance, model, stream);
  }
  Status nesterov(double lr, double momentum, DeviceSpan<const float> mean, DeviceSpan<float> moment,
                  DeviceSpan<float> model, Stream& stream) override {
    return launch_momentum<true>(lr, momentum, mean, moment, model, stream);
  }
  Status delayed_nesterov(const DelayedNesterovOptions& options, DeviceSpan<const float> mean, DeviceSpan<float> moment,
                          DeviceSpan<float> buffer, DeviceSpan<float> model, Stream& stream) override {
    return launch_delayed_nesterov(options, mean, moment, buffer, model, stream);
  }
  Status fold(DeviceSpan<const float> update, DeviceSpan<const float> residual, DeviceSpan<float> out,
              Stream& stream) override {
    return launch_each(FoldOp{update.data(), residual.data(), out.data()}, out.size(),
                       fits_four(update.data()) && fits_four(residual.data()) && fits_four(out.data()), stream);
  }
  Status add_squares(DeviceSpan<const float> values, DeviceSpan<double> lanes, DeviceSpan<std::byte> workspace,
                     Stream& stream) override {
    return launch_squares_of(values, lanes, workspace, stream);
  }
  Status lars(const LarsRates& rates, DeviceSpan<const float> mean, DeviceSpan<float> moment, DeviceSpan<float> model,
              Stream& stream) override {
    return launch_lars(rates, mean, moment, model, stream);
  }
  Status add_lamb_squares(const ops::LambFactors& factors, DeviceSpan<const float> mean, DeviceSpan<const float> moment,
                          DeviceSpan<const float> variance, DeviceSpan<const float> model, DeviceSpan<double> lanes,
                          DeviceSpan<std::byte> workspace, Stream& stream) override {
    return launch_lamb_squares(factors, mean, moment, variance, model, lanes, workspace, stream);
  }
  Status lamb(const ops::LambFactors& factors, DeviceSpan<const float> mean, DeviceSpan<float> moment,
              DeviceSpan<float> variance, DeviceSpan<float> model, Stream& stream) override {
    return launch_lamb(factors, mean, moment, variance, model, stream);
  }
};

}  // namespace

DeviceVectorOps& vector_ops() {
  static GpuVectorOps ops;
  return ops;
}

}  // namespace fluvial::kernels::FLUVIAL_GPU

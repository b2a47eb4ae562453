// vector.h and fixed.h on a device: the same arithmetic on device memory, in a stream; the same bits as on the CPU
// unless stated. Spans of one call have equal lengths (checked).
#pragma once

#include <span>

#include "kernels/device.h"
#include "kernels/device_codec.h"
#include "kernels/optimizer.h"
#include "kernels/reduce.h"

namespace fluvial::kernels {

// out = ((x0 + x1) + x2) + ..., each addition rounded to fp32, in one pass. `out` may be any of the inputs.
// kInvalidArgument unless there are 1 to kReduceInputsMax.
Status device_reduce(std::span<const DeviceSpan<const float>> buffers, DeviceSpan<float> out, Stream& stream);

// reduce_mean of reduce.h: added in fp64, rounded once. As above.
Status device_reduce_mean(std::span<const DeviceSpan<const float>> buffers, DeviceSpan<float> out, Stream& stream);

// weighted_mean and combine of vector.h, in one pass. `out` may be any of the vectors. As above; and kInvalidArgument
// as weighted_mean.
Status device_weighted_mean(std::span<const DeviceSpan<const float>> vectors, std::span<const std::uint32_t> weights,
                            DeviceSpan<float> out, Stream& stream);
Status device_combine(std::span<const DeviceSpan<const float>> vectors, std::span<const double> coefficients,
                      DeviceSpan<float> out, Stream& stream);

// Greatest magnitude, squared 2-norm, and the first coordinate that is not finite: into the outcome (max_bits,
// norm_squared, not_finite_at), once the stream was synchronised; screened_vector() reads it.
//
// norm_squared in fp64, added in an order of its own that depends on the length alone (so the same in every run and on
// every GPU, but not the CPU's): tiles of 4,096 values; in a tile thread t of 256 adds the squares at 4 t + 1,024 j + i
// in the order of j, then i (both 0 to 3); the 32 threads of a warp as a tree (t and t + 16, then 8, 4, 2, 1); the
// warps in order. Then the tiles: thread t of 1,024 adds tiles t, t + 1,024, ... in order, and the threads as before.
Status device_screen(DeviceSpan<const float> values, std::uint64_t first_value, DeviceSpan<std::byte> workspace,
                     ChunkOutcome* outcome, Stream& stream);
std::size_t device_screen_workspace_bytes(std::size_t value_count);
Result<ScreenReport> screened_vector(const ChunkOutcome& outcome);

// sum = fp32(sum + fp32(weight * x)).
Status device_add_scaled(DeviceSpan<const float> x, float weight, DeviceSpan<float> sum, Stream& stream);
// sum += add, wrapping. Unlike merge_chunk it does not look for overflow: for sums that the scale keeps in range.
Status device_add_sums(DeviceSpan<const std::int64_t> add, DeviceSpan<std::int64_t> sum, Stream& stream);
// mean_of_sums of fixed.h.
Status device_mean_of_sums(DeviceSpan<const std::int64_t> sum, int scale_bits, std::uint64_t total_weight,
                           DeviceSpan<float> out, Stream& stream);

// pseudo_gradient, apply_sgd and apply_momentum of vector.h. `residual` may be empty.
Status device_pseudo_gradient(DeviceSpan<const float> base, DeviceSpan<const float> local,
                              DeviceSpan<const float> residual, DeviceSpan<float> out, Stream& stream);
Status device_apply_sgd(double lr, DeviceSpan<const float> mean, DeviceSpan<float> model, Stream& stream);
Status device_apply_momentum(double lr, double momentum, DeviceSpan<const float> mean, DeviceSpan<float> moment,
                             DeviceSpan<float> model, Stream& stream);
// apply_adaptive, apply_nesterov and apply_delayed_nesterov of optimizer.h.
Status device_apply_adaptive(AdaptiveRule rule, const AdaptiveOptions& options, DeviceSpan<const float> mean,
                             DeviceSpan<float> moment, DeviceSpan<float> variance, DeviceSpan<float> model,
                             Stream& stream);
Status device_apply_nesterov(double lr, double momentum, DeviceSpan<const float> mean, DeviceSpan<float> moment,
                             DeviceSpan<float> model, Stream& stream);
Status device_apply_delayed_nesterov(const DelayedNesterovOptions& options, DeviceSpan<const float> mean,
                                     DeviceSpan<float> moment, DeviceSpan<float> buffer, DeviceSpan<float> model,
                                     Stream& stream);

// fold of codec.h: out = (update + residual) + 0. `residual` may be empty; `out` may be either.
Status device_fold(DeviceSpan<const float> update, DeviceSpan<const float> residual, DeviceSpan<float> out,
                   Stream& stream);

// add_squares, apply_lars, add_lamb_squares and apply_lamb of optimizer.h; the norms too have the CPU's bits. `lanes`
// are as SquareLanes, zeros at first; the host reads them for the rates.
// The workspace is of device_squares_workspace_bytes(), aligned to 8.
std::size_t device_squares_workspace_bytes(std::size_t value_count);
Status device_add_squares(DeviceSpan<const float> values, DeviceSpan<double> lanes, DeviceSpan<std::byte> workspace,
                          Stream& stream);
Status device_apply_lars(double momentum, double rate, double weight_decay, DeviceSpan<const float> mean,
                         DeviceSpan<float> moment, DeviceSpan<float> model, Stream& stream);
Status device_add_lamb_squares(const LambOptions& options, DeviceSpan<const float> mean, DeviceSpan<const float> moment,
                               DeviceSpan<const float> variance, DeviceSpan<const float> model,
                               DeviceSpan<double> lanes, DeviceSpan<std::byte> workspace, Stream& stream);
Status device_apply_lamb(const LambOptions& options, double rate, DeviceSpan<const float> mean,
                         DeviceSpan<float> moment, DeviceSpan<float> variance, DeviceSpan<float> model, Stream& stream);

// A backend's part of these; arguments were checked, lengths are above zero. Internal.
//
// How many values of a vector are summed at once, in 16 lanes, how many such pieces then, and from how many values on
// this pays.
inline constexpr std::size_t kSquaresPiece = 4096;
inline constexpr std::size_t kSquaresGroup = 64;
inline constexpr std::size_t kSquaresInPieces = 8 * kSquaresPiece;
struct SquaresPiece {    // or a group
  std::uint64_t add[2];  // what it adds to a sum, by that sum's lowest bit, in units of it
  double start;          // about what the sum is before it
};
struct LarsRates {
  double momentum, rate, weight_decay;
};
class DeviceVectorOps {
 public:
  virtual ~DeviceVectorOps() = default;
  virtual Status reduce(std::span<const DeviceSpan<const float>> buffers, DeviceSpan<float> out, Stream& stream) = 0;
  virtual Status reduce_mean(std::span<const DeviceSpan<const float>> buffers, DeviceSpan<float> out,
                             Stream& stream) = 0;
  virtual Status weighted_sum(std::span<const DeviceSpan<const float>> vectors, std::span<const double> coefficients,
                              double divisor, DeviceSpan<float> out, Stream& stream) = 0;
  virtual Status screen(DeviceSpan<const float> values, std::uint64_t first_value, DeviceSpan<std::byte> workspace,
                        ChunkOutcome* outcome, Stream& stream) = 0;
  virtual Status add_scaled(DeviceSpan<const float> x, float weight, DeviceSpan<float> sum, Stream& stream) = 0;
  virtual Status add_sums(DeviceSpan<const std::int64_t> add, DeviceSpan<std::int64_t> sum, Stream& stream) = 0;
  virtual Status mean_of_sums(DeviceSpan<const std::int64_t> sum, double inverse_scale, double total_weight,
                              DeviceSpan<float> out, Stream& stream) = 0;
  virtual Status pseudo_gradient(DeviceSpan<const float> base, DeviceSpan<const float> local,
                                 DeviceSpan<const float> residual, DeviceSpan<float> out, Stream& stream) = 0;
  virtual Status sgd(double lr, DeviceSpan<const float> mean, DeviceSpan<float> model, Stream& stream) = 0;
  virtual Status momentum(double lr, double momentum, DeviceSpan<const float> mean, DeviceSpan<float> moment,
                          DeviceSpan<float> model, Stream& stream) = 0;
  virtual Status adaptive(AdaptiveRule rule, const AdaptiveOptions& options, DeviceSpan<const float> mean,
                          DeviceSpan<float> moment, DeviceSpan<float> variance, DeviceSpan<float> model,
                          Stream& stream) = 0;
  virtual Status nesterov(double lr, double momentum, DeviceSpan<const float> mean, DeviceSpan<float> moment,
                          DeviceSpan<float> model, Stream& stream) = 0;
  virtual Status delayed_nesterov(const DelayedNesterovOptions& options, DeviceSpan<const float> mean,
                                  DeviceSpan<float> moment, DeviceSpan<float> buffer, DeviceSpan<float> model,
                                  Stream& stream) = 0;
  virtual Status fold(DeviceSpan<const float> update, DeviceSpan<const float> residual, DeviceSpan<float> out,
                      Stream& stream) = 0;
  virtual Status add_squares(DeviceSpan<const float> values, DeviceSpan<double> lanes, DeviceSpan<std::byte> workspace,
                             Stream& stream) = 0;
  virtual Status lars(const LarsRates& rates, DeviceSpan<const float> mean, DeviceSpan<float> moment,
                      DeviceSpan<float> model, Stream& stream) = 0;
  virtual Status add_lamb_squares(const ops::LambFactors& factors, DeviceSpan<const float> mean,
                                  DeviceSpan<const float> moment, DeviceSpan<const float> variance,
                                  DeviceSpan<const float> model, DeviceSpan<double> lanes,
                                  DeviceSpan<std::byte> workspace, Stream& stream) = 0;
  virtual Status lamb(const ops::LambFactors& factors, DeviceSpan<const float> mean, DeviceSpan<float> moment,
                      DeviceSpan<float> variance, DeviceSpan<float> model, Stream& stream) = 0;
};

}  // namespace fluvial::kernels

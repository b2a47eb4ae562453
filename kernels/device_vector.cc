#include "kernels/device_vector.h"

#include <cmath>

#include "core/base/format.h"
#include "kernels/device_backend.h"
#include "kernels/fixed.h"
#include "kernels/pieces.h"

namespace fluvial::kernels {
namespace {

constexpr std::size_t kTileValues = 4096;
constexpr std::size_t kScreenHeadBytes = 16;

DeviceVectorOps& ops_of(Stream& stream) { return stream.backend().vector_ops(); }

template <typename... Sizes>
void check_equal(std::size_t size, Sizes... others) {
  FLUVIAL_CHECK(((others == size) && ...), "device vectors of different lengths");
}

Status check_squares_workspace(DeviceSpan<std::byte> workspace, std::size_t value_count) {
  const std::size_t expected = device_squares_workspace_bytes(value_count);
  if (workspace.size() >= expected && reinterpret_cast<std::uintptr_t>(workspace.data()) % 8 == 0) return {};
  return Error{Code::kInvalidArgument,
               format_text("a workspace of {} bytes, expected {}, aligned to 8", workspace.size(), expected)};
}

Status check_buffers(std::span<const DeviceSpan<const float>> buffers, DeviceSpan<float> out) {
  if (buffers.empty() || buffers.size() > kReduceInputsMax) {
    return Error{Code::kInvalidArgument,
                 format_text("{} buffers to reduce, expected 1 to {}", buffers.size(), kReduceInputsMax)};
  }
  for (const auto& buffer : buffers) check_equal(buffer.size(), out.size());
  return {};
}

}  // namespace

Status device_reduce(std::span<const DeviceSpan<const float>> buffers, DeviceSpan<float> out, Stream& stream) {
  FLUVIAL_TRY(check_buffers(buffers, out));
  return out.empty() ? Status() : ops_of(stream).reduce(buffers, out, stream);
}

Status device_reduce_mean(std::span<const DeviceSpan<const float>> buffers, DeviceSpan<float> out, Stream& stream) {
  FLUVIAL_TRY(check_buffers(buffers, out));
  return out.empty() ? Status() : ops_of(stream).reduce_mean(buffers, out, stream);
}

Status device_weighted_mean(std::span<const DeviceSpan<const float>> vectors, std::span<const std::uint32_t> weights,
                            DeviceSpan<float> out, Stream& stream) {
  FLUVIAL_TRY(check_buffers(vectors, out));
  FLUVIAL_ASSIGN(const Weights checked, check_weights(weights, vectors.size()));
  if (out.empty()) return {};
  return ops_of(stream).weighted_sum(vectors, checked.each, checked.total, out, stream);
}

Status device_combine(std::span<const DeviceSpan<const float>> vectors, std::span<const double> coefficients,
                      DeviceSpan<float> out, Stream& stream) {
  FLUVIAL_TRY(check_buffers(vectors, out));
  FLUVIAL_CHECK(vectors.size() == coefficients.size(), "as many coefficients as vectors");
  return out.empty() ? Status() : ops_of(stream).weighted_sum(vectors, coefficients, 1, out, stream);
}

Status device_screen(DeviceSpan<const float> values, std::uint64_t first_value, DeviceSpan<std::byte> workspace,
                     ChunkOutcome* outcome, Stream& stream) {
  if (workspace.size() < device_screen_workspace_bytes(values.size())) {
    return Error{Code::kInvalidArgument, format_text("a workspace of {} bytes, expected {}", workspace.size(),
                                                     device_screen_workspace_bytes(values.size()))};
  }
  *outcome = ChunkOutcome{};
  return values.empty() ? Status() : ops_of(stream).screen(values, first_value, workspace, outcome, stream);
}

std::size_t device_screen_workspace_bytes(std::size_t value_count) {
  return kScreenHeadBytes + (value_count + kTileValues - 1) / kTileValues * (sizeof(double) + sizeof(std::uint64_t));
}

Status device_add_scaled(DeviceSpan<const float> x, float weight, DeviceSpan<float> sum, Stream& stream) {
  check_equal(x.size(), sum.size());
  return sum.empty() ? Status() : ops_of(stream).add_scaled(x, weight, sum, stream);
}

Status device_add_sums(DeviceSpan<const std::int64_t> add, DeviceSpan<std::int64_t> sum, Stream& stream) {
  check_equal(add.size(), sum.size());
  return sum.empty() ? Status() : ops_of(stream).add_sums(add, sum, stream);
}

Status device_mean_of_sums(DeviceSpan<const std::int64_t> sum, int scale_bits, std::uint64_t total_weight,
                           DeviceSpan<float> out, Stream& stream) {
  check_equal(sum.size(), out.size());
  FLUVIAL_CHECK(total_weight >= 1 && total_weight < kWeightSumEnd, "a total weight that no round can have");
  if (out.empty()) return {};
  return ops_of(stream).mean_of_sums(sum, std::ldexp(1.0, -scale_bits), static_cast<double>(total_weight), out, stream);
}

Status device_pseudo_gradient(DeviceSpan<const float> base, DeviceSpan<const float> local,
                              DeviceSpan<const float> residual, DeviceSpan<float> out, Stream& stream) {
  check_equal(base.size(), out.size());
  check_equal(local.size(), out.size());
  if (!residual.empty()) check_equal(residual.size(), out.size());
  return out.empty() ? Status() : ops_of(stream).pseudo_gradient(base, local, residual, out, stream);
}

Status device_apply_sgd(double lr, DeviceSpan<const float> mean, DeviceSpan<float> model, Stream& stream) {
  check_equal(mean.size(), model.size());
  return model.empty() ? Status() : ops_of(stream).sgd(lr, mean, model, stream);
}

Status device_apply_momentum(double lr, double momentum, DeviceSpan<const float> mean, DeviceSpan<float> moment,
                             DeviceSpan<float> model, Stream& stream) {
  check_equal(mean.size(), moment.size(), model.size());
  return model.empty() ? Status() : ops_of(stream).momentum(lr, momentum, mean, moment, model, stream);
}

Status device_apply_adaptive(AdaptiveRule rule, const AdaptiveOptions& options, DeviceSpan<const float> mean,
                             DeviceSpan<float> moment, DeviceSpan<float> variance, DeviceSpan<float> model,
                             Stream& stream) {
  check_equal(mean.size(), moment.size(), variance.size(), model.size());
  if (model.empty()) return {};
  return ops_of(stream).adaptive(rule, options, mean, moment, variance, model, stream);
}

Status device_apply_nesterov(double lr, double momentum, DeviceSpan<const float> mean, DeviceSpan<float> moment,
                             DeviceSpan<float> model, Stream& stream) {
  check_equal(mean.size(), moment.size(), model.size());
  return model.empty() ? Status() : ops_of(stream).nesterov(lr, momentum, mean, moment, model, stream);
}

Status device_apply_delayed_nesterov(const DelayedNesterovOptions& options, DeviceSpan<const float> mean,
                                     DeviceSpan<float> moment, DeviceSpan<float> buffer, DeviceSpan<float> model,
                                     Stream& stream) {
  check_equal(mean.size(), moment.size(), buffer.size(), model.size());
  if (model.empty()) return {};
  return ops_of(stream).delayed_nesterov(options, mean, moment, buffer, model, stream);
}

Status device_fold(DeviceSpan<const float> update, DeviceSpan<const float> residual, DeviceSpan<float> out,
                   Stream& stream) {
  check_equal(update.size(), out.size());
  if (!residual.empty()) check_equal(residual.size(), out.size());
  if (residual.empty()) residual = {};  // which an empty part of something is not
  return out.empty() ? Status() : ops_of(stream).fold(update, residual, out, stream);
}

std::size_t device_squares_workspace_bytes(std::size_t value_count) {
  if (value_count < kSquaresInPieces) return 0;
  const std::size_t pieces = (value_count + kSquaresPiece - 1) / kSquaresPiece;
  const std::size_t groups = (pieces + kSquaresGroup - 1) / kSquaresGroup;
  return (pieces + groups) * std::tuple_size_v<SquareLanes> * sizeof(SquaresPiece);
}

Status device_add_squares(DeviceSpan<const float> values, DeviceSpan<double> lanes, DeviceSpan<std::byte> workspace,
                          Stream& stream) {
  check_equal(lanes.size(), std::tuple_size_v<SquareLanes>);
  FLUVIAL_TRY(check_squares_workspace(workspace, values.size()));
  return values.empty() ? Status() : ops_of(stream).add_squares(values, lanes, workspace, stream);
}

Status device_apply_lars(double momentum, double rate, double weight_decay, DeviceSpan<const float> mean,
                         DeviceSpan<float> moment, DeviceSpan<float> model, Stream& stream) {
  check_equal(mean.size(), moment.size(), model.size());
  return model.empty() ? Status() : ops_of(stream).lars({momentum, rate, weight_decay}, mean, moment, model, stream);
}

Status device_add_lamb_squares(const LambOptions& options, DeviceSpan<const float> mean, DeviceSpan<const float> moment,
                               DeviceSpan<const float> variance, DeviceSpan<const float> model,
                               DeviceSpan<double> lanes, DeviceSpan<std::byte> workspace, Stream& stream) {
  check_equal(lanes.size(), std::tuple_size_v<SquareLanes>);
  FLUVIAL_TRY(check_squares_workspace(workspace, model.size()));
  check_equal(mean.size(), moment.size(), variance.size(), model.size());
  if (model.empty()) return {};
  return ops_of(stream).add_lamb_squares(lamb_factors(options, 0), mean, moment, variance, model, lanes, workspace,
                                         stream);
}

Status device_apply_lamb(const LambOptions& options, double rate, DeviceSpan<const float> mean,
                         DeviceSpan<float> moment, DeviceSpan<float> variance, DeviceSpan<float> model,
                         Stream& stream) {
  check_equal(mean.size(), moment.size(), variance.size(), model.size());
  if (model.empty()) return {};
  return ops_of(stream).lamb(lamb_factors(options, rate), mean, moment, variance, model, stream);
}

}  // namespace fluvial::kernels

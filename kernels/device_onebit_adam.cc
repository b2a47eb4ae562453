#include "kernels/device_onebit_adam.h"

#include "core/base/format.h"
#include "kernels/device_backend.h"
#include "kernels/device_vector.h"
#include "kernels/ops/bits.h"

namespace fluvial::kernels {
namespace {

DeviceVectorOps& ops_of(Stream& stream) { return stream.backend().vector_ops(); }

ops::OnebitFactors factors_of(const OnebitAdamOptions& options) {
  return ops::onebit_factors(options.beta1, options.beta2, options.eps);
}

void check_lengths(std::size_t expected, std::initializer_list<std::size_t> lengths) {
  for (const std::size_t length : lengths) FLUVIAL_CHECK(length == expected, "device vectors of different lengths");
}

Status check_magnitude(std::string_view what, const ChunkOutcome& outcome, float most) {
  FLUVIAL_ASSIGN(const ScreenReport report, screened_vector(outcome));
  if (report.max_abs <= most) return {};
  return Error{Code::kInvalidArgument, format_text("1-bit Adam: the {} has a magnitude of {}, expected at most {}",
                                                   what, report.max_abs, most)};
}

}  // namespace

Result<DeviceOnebitAdam> DeviceOnebitAdam::make(const Device& device, const OnebitAdamOptions& options) {
  FLUVIAL_TRY(OnebitAdam::make(options));  // checks them
  DeviceOnebitAdam adam(options);
  FLUVIAL_ASSIGN(adam.fp32_, make_device_codec(device, {.kind = CodecKind::kFp32}));
  FLUVIAL_ASSIGN(adam.sign_,
                 make_device_codec(device, {.kind = CodecKind::kSign, .block_values = options.block_values}));
  return adam;
}

Status DeviceOnebitAdam::fold(std::uint64_t round, DeviceSpan<const float> gradient, DeviceSpan<const float> momentum,
                              DeviceSpan<const float> residual, DeviceSpan<float> out, Stream& stream) const {
  check_lengths(out.size(), {gradient.size(), momentum.size(), residual.size()});
  if (warming_up(round)) return device_fold(gradient, {}, out, stream);
  if (out.empty()) return {};
  return ops_of(stream).onebit_fold(factors_of(options_), gradient, momentum, residual, out, stream);
}

Status DeviceOnebitAdam::checked_mean(const ChunkOutcome& outcome) {
  return check_magnitude("mean", outcome, OnebitAdam::kMeanMax);
}
Status DeviceOnebitAdam::checked_residual(const ChunkOutcome& outcome) {
  return check_magnitude("residual", outcome, OnebitAdam::kResidualMax);
}

Status DeviceOnebitAdam::step(const DeviceOnebitAdamServer& state, double lr, DeviceSpan<const float> mean,
                              DeviceSpan<float> model, DeviceSpan<std::byte> out, ChunkOutcome* outcome,
                              Stream& stream) const {
  const std::size_t n = mean.size();
  check_lengths(n, {model.size(), state.momentum.size(), state.variance.size()});
  check_lengths(options_.two_sided ? n : 0, {state.residual.size()});
  if (n == 0) return {};
  if (warming_up(state.round)) {
    FLUVIAL_TRY(
        ops_of(stream).onebit_warm_up(factors_of(options_), lr, mean, state.momentum, state.variance, model, stream));
    if (state.round + 1 < options_.freeze_round || options_.variance_floor == 0) return {};
    return ops_of(stream).onebit_raise(static_cast<float>(options_.variance_floor), state.variance, stream);
  }
  if (options_.two_sided) return step_two_sided(state, lr, mean, model, out, outcome, stream);
  FLUVIAL_TRY(copy_on_device(mean, state.momentum, stream));
  return apply(lr, state.momentum, state.variance, model, stream);
}

Status DeviceOnebitAdam::step_two_sided(const DeviceOnebitAdamServer& state, double lr, DeviceSpan<const float> mean,
                                        DeviceSpan<float> model, DeviceSpan<std::byte> out, ChunkOutcome* outcome,
                                        Stream& stream) const {
  const VectorSchema schema{.layout = {.value_count = mean.size(), .chunk_values = mean.size()}, .tensors = {}};
  FLUVIAL_TRY(device_fold(mean, state.residual, state.momentum, stream));
  FLUVIAL_ASSIGN(const DevicePlan plan, sign_->prepare(schema, state.momentum, {}, {}, {}, stream));
  FLUVIAL_TRY(sign_->encode_residual_chunk(plan, 0, state.momentum, out, state.residual, outcome, stream));
  const DeviceSpan<const std::byte> encoded = out.first(sign_->encoded_bytes_max(mean.size()));
  FLUVIAL_TRY(sign_->decode_chunk(encoded, state.momentum, stream));
  return apply(lr, state.momentum, state.variance, model, stream);
}

Status DeviceOnebitAdam::apply(double lr, DeviceSpan<const float> momentum, DeviceSpan<const float> variance,
                               DeviceSpan<float> model, Stream& stream) const {
  check_lengths(model.size(), {momentum.size(), variance.size()});
  if (model.empty()) return {};
  return ops_of(stream).onebit_apply(factors_of(options_), lr, momentum, variance, model, stream);
}

}  // namespace fluvial::kernels

#include "kernels/onebit_adam.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/check.h"
#include "core/base/format.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/onebit_adam_loops.h"
#include "kernels/ops/bits.h"
#include "kernels/pieces.h"

namespace fluvial::kernels {
namespace {

Error invalid(std::string message) { return {Code::kInvalidArgument, "1-bit Adam: " + std::move(message)}; }

ops::OnebitFactors factors_of(const OnebitAdamOptions& options) {
  return ops::onebit_factors(options.beta1, options.beta2, options.eps);
}

Status check_options(const OnebitAdamOptions& options) {
  for (const double beta : {options.beta1, options.beta2}) {
    if (!(beta >= 0 && beta < 1)) return invalid(format_text("a beta is {}, expected at least 0 and below 1", beta));
  }
  if (!(options.eps >= 1e-12 && options.eps <= 1)) {
    return invalid(format_text("eps is {}, expected 1e-12 to 1", options.eps));
  }
  if (!(options.variance_floor >= 0 && options.variance_floor <= 1e30)) {
    return invalid(format_text("variance_floor is {}, expected 0 to 1e30", options.variance_floor));
  }
  if (options.freeze_round == 0) return invalid("freeze_round is 0, expected at least 1: a variance needs a warm-up");
  return {};
}

// The first value that is beyond `most` or not finite.
Status check_magnitudes(std::string_view what, std::span<const float> values, float most, std::uint64_t first_value) {
  const std::uint32_t limit = ops::float_bits(most);
  if (cpu::loops().max_bits(values.data(), values.size()) <= limit) return {};
  const auto at = std::ranges::find_if(values, [&](float value) { return ops::magnitude_bits(value) > limit; });
  return invalid(format_text("the {} of value {} is {}, expected a magnitude of at most {}", what,
                             first_value + static_cast<std::uint64_t>(at - values.begin()), *at, most));
}

}  // namespace

Result<OnebitAdam> OnebitAdam::make(const OnebitAdamOptions& options, cpu::Target target) {
  FLUVIAL_TRY(check_options(options));
  OnebitAdam adam(options, cpu::onebit_adam_loops(target));
  FLUVIAL_ASSIGN(adam.fp32_, make_codec({.kind = CodecKind::kFp32}, target));
  FLUVIAL_ASSIGN(adam.sign_, make_codec({.kind = CodecKind::kSign, .block_values = options.block_values}, target));
  return adam;
}

void OnebitAdam::fold(std::uint64_t round, std::span<const float> gradient, std::span<const float> momentum,
                      std::span<const float> residual, std::span<float> out) const {
  const std::size_t n = out.size();
  FLUVIAL_CHECK(gradient.size() == n && momentum.size() == n && residual.size() == n, "vectors of different lengths");
  if (warming_up(round)) {
    cpu::loops().fold(gradient.data(), nullptr, n, out.data());
  } else {
    loops_->fold(factors_of(options_), gradient.data(), momentum.data(), residual.data(), n, out.data());
  }
}

Result<std::size_t> OnebitAdam::step(const OnebitAdamServer& state, double lr, std::span<const float> mean,
                                     std::span<float> model, MutableByteSpan out, std::uint64_t first_value) const {
  const std::size_t n = mean.size();
  FLUVIAL_CHECK(model.size() == n && state.momentum.size() == n && state.variance.size() == n &&
                    state.residual.size() == (options_.two_sided ? n : 0),
                "vectors of different lengths");
  FLUVIAL_TRY(check_magnitudes("mean", mean, kMeanMax, first_value));
  if (warming_up(state.round)) {
    loops_->warm_up(factors_of(options_), lr, mean.data(), n, state.momentum.data(), state.variance.data(),
                    model.data());
    if (state.round + 1 == options_.freeze_round && options_.variance_floor > 0) {
      loops_->raise(static_cast<float>(options_.variance_floor), n, state.variance.data());
    }
    return std::size_t{0};
  }
  if (n == 0) return std::size_t{0};
  if (!options_.two_sided) {
    for (std::size_t first = 0; first < n; first += kPieceValues) {  // read again while it is in the cache
      const std::size_t length = std::min(kPieceValues, n - first);
      std::memcpy(state.momentum.data() + first, mean.data() + first, length * sizeof(float));
      apply(lr, state.momentum.subspan(first, length), state.variance.subspan(first, length),
            model.subspan(first, length));
    }
    return std::size_t{0};
  }
  FLUVIAL_TRY(check_magnitudes("residual", state.residual, kResidualMax, first_value));
  return step_two_sided(state, lr, mean, model, out);
}

Result<std::size_t> OnebitAdam::step_two_sided(const OnebitAdamServer& state, double lr, std::span<const float> mean,
                                               std::span<float> model, MutableByteSpan out) const {
  if (out.size() < sign_->encoded_bytes_max(mean.size())) {
    return invalid(
        format_text("room for {} encoded bytes, expected {}", out.size(), sign_->encoded_bytes_max(mean.size())));
  }
  const VectorSchema schema{.layout = {.value_count = mean.size(), .chunk_values = mean.size()}, .tensors = {}};
  FLUVIAL_ASSIGN(const EncodePlan plan, sign_->prepare(schema, mean, {}, {}, {}, {}));
  cpu::loops().fold(mean.data(), state.residual.data(), mean.size(), state.momentum.data());
  FLUVIAL_ASSIGN(const std::size_t size, sign_->encode_residual_chunk(plan, 0, state.momentum, out, state.residual));
  FLUVIAL_TRY(sign_->decode_chunk(ByteSpan(out).first(size), state.momentum));
  apply(lr, state.momentum, state.variance, model);
  return size;
}

void OnebitAdam::apply(double lr, std::span<const float> momentum, std::span<const float> variance,
                       std::span<float> model) const {
  FLUVIAL_CHECK(momentum.size() == model.size() && variance.size() == model.size(), "vectors of different lengths");
  loops_->apply(factors_of(options_), lr, momentum.data(), variance.data(), model.size(), model.data());
}

}  // namespace fluvial::kernels

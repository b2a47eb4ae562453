#include "kernels/onebit_adam.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "core/base/format.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/onebit_adam_loops.h"
#include "kernels/ops/bits.h"

namespace fluvial::kernels {
namespace {

Error invalid(std::string message) { return {Code::kInvalidArgument, "1-bit Adam: " + std::move(message)}; }

Status check_options(const OnebitAdamOptions& options) {
  for (const double beta : {options.beta1, options.beta2}) {
    if (!(beta >= 0 && beta < 1)) return invalid(format_text("a beta is {}, expected at least 0 and below 1", beta));
  }
  if (options.tau >= 1e-12 && options.tau <= 1e12) return {};
  return invalid(format_text("tau is {}, expected 1e-12 to 1e12", options.tau));
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

std::size_t MomentumLayout::bytes() const {
  if (layout_.value_count == 0) return 0;
  const std::size_t last = layout_.chunk_count() - 1;
  return last * padded(static_cast<std::size_t>(layout_.chunk_values)) + padded(layout_.size(last));
}

Result<OnebitAdam> OnebitAdam::make(const OnebitAdamOptions& options, cpu::Target target) {
  FLUVIAL_TRY(check_options(options));
  OnebitAdam adam(options, cpu::onebit_adam_loops(target));
  FLUVIAL_ASSIGN(adam.sign_, make_codec({.kind = CodecKind::kSign, .block_values = options.block_values}, target));
  return adam;
}

Status OnebitAdam::compress(std::span<float> moment, std::span<float> sent, MutableByteSpan handed) const {
  const VectorSchema schema{.layout = {.value_count = moment.size(), .chunk_values = moment.size()}, .tensors = {}};
  FLUVIAL_ASSIGN(const EncodePlan plan, sign_->prepare(schema, moment, {}, {}, {}, {}));
  FLUVIAL_ASSIGN(const std::size_t size, sign_->encode_residual_chunk(plan, 0, moment, handed, moment));
  std::ranges::fill(handed.subspan(size), std::byte{0});
  return sign_->decode_chunk(handed.first(size), sent);
}

Status OnebitAdam::step(std::uint64_t round, double lr, std::span<const float> mean, std::span<float> moment,
                        std::span<float> variance, std::span<float> model, MutableByteSpan handed,
                        std::uint64_t first_value) const {
  const std::size_t n = mean.size();
  FLUVIAL_CHECK(model.size() == n && moment.size() == n && variance.size() == n, "vectors of different lengths");
  FLUVIAL_CHECK(!hands_down(round) || handed.size() >= sign_->encoded_bytes_max(n), "no room for the momentum");
  FLUVIAL_TRY(check_magnitudes("mean", mean, kMeanMax, first_value));
  const auto factors = ops::onebit_factors(options_.beta1, options_.beta2, static_cast<float>(options_.tau));
  Values<float> sent(hands_down(round) ? n : 0);
  if (is_warm_up(round, options_.freeze_rounds)) {
    loops_->warm_up(factors, lr, mean.data(), n, moment.data(), variance.data(), model.data());
    return hands_down(round) ? compress(moment, sent.span(), handed) : Status();
  }
  FLUVIAL_TRY(check_magnitudes("residual", moment, kResidualMax, first_value));
  loops_->fold(factors, mean.data(), moment.data(), n);
  FLUVIAL_TRY(compress(moment, sent.span(), handed));
  loops_->apply(factors, lr, sent.span().data(), variance.data(), n, model.data());
  return {};
}

}  // namespace fluvial::kernels

#include "kernels/reduce.h"

#include <array>
#include <cmath>

#include "core/base/format.h"
#include "kernels/cpu/reduce_loops.h"
#include "kernels/ops/bits.h"
#include "kernels/ops/norm.h"
#include "kernels/pieces.h"
#include "kernels/vector.h"

namespace fluvial::kernels {
namespace {

constexpr std::size_t kStreamFromValues = std::size_t{1} << 18;  // a result that outgrows the caches goes past them

// The inputs as the loops take them.
template <typename T>
struct Pointers {
  std::array<const T*, kReduceInputsMax> in{};
  std::size_t count = 0;
  bool stream = false;
};

template <typename T>
Result<Pointers<T>> pointers_of(std::span<const std::span<const T>> inputs, std::size_t value_bytes,
                                std::span<float> out) {
  if (inputs.empty() || inputs.size() > kReduceInputsMax) {
    return Error{Code::kInvalidArgument,
                 format_text("{} vectors to sum, expected 1 to {}", inputs.size(), kReduceInputsMax)};
  }
  Pointers<T> pointers{.count = inputs.size(), .stream = out.size() >= kStreamFromValues};
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    FLUVIAL_CHECK(inputs[k].size_bytes() == out.size() * value_bytes, "vectors of different lengths");
    pointers.in[k] = inputs[k].data();
    // An output that is also read is in the caches anyway.
    if (static_cast<const void*>(inputs[k].data()) == static_cast<const void*>(out.data())) pointers.stream = false;
  }
  return pointers;
}

}  // namespace

Status reduce_sum(std::span<const std::span<const float>> inputs, SumIn precision, std::span<float> out,
                  cpu::Target target) {
  FLUVIAL_ASSIGN(const auto from, pointers_of(inputs, sizeof(float), out));
  const cpu::ReduceLoops& loops = cpu::reduce_loops(target);
  if (precision == SumIn::kFp32) {
    loops.sum(from.in.data(), from.count, out.size(), from.stream, out.data());
  } else {
    loops.wide_sum(from.in.data(), from.count, out.size(), 1.0, from.stream, out.data());
  }
  return {};
}

Status reduce_sum_bf16(std::span<const ByteSpan> inputs, SumIn precision, std::span<float> out, cpu::Target target) {
  FLUVIAL_ASSIGN(const auto from, pointers_of<std::byte>(inputs, 2, out));
  const cpu::ReduceLoops& loops = cpu::reduce_loops(target);
  if (precision == SumIn::kFp32) {
    loops.sum_bf16(from.in.data(), from.count, out.size(), from.stream, out.data());
  } else {
    loops.wide_sum_bf16(from.in.data(), from.count, out.size(), 1.0, from.stream, out.data());
  }
  return {};
}

Status reduce_mean(std::span<const std::span<const float>> inputs, std::span<float> out, cpu::Target target) {
  FLUVIAL_ASSIGN(const auto from, pointers_of(inputs, sizeof(float), out));
  cpu::reduce_loops(target).wide_sum(from.in.data(), from.count, out.size(), static_cast<double>(from.count),
                                     from.stream, out.data());
  return {};
}

Status reduce_mean_bf16(std::span<const ByteSpan> inputs, std::span<float> out, cpu::Target target) {
  FLUVIAL_ASSIGN(const auto from, pointers_of<std::byte>(inputs, 2, out));
  cpu::reduce_loops(target).wide_sum_bf16(from.in.data(), from.count, out.size(), static_cast<double>(from.count),
                                          from.stream, out.data());
  return {};
}

Result<double> clip_factor(double norm_squared, double bound) {
  if (!(bound > 0 && std::isfinite(bound)) || !(norm_squared >= 0 && std::isfinite(norm_squared))) {
    return Error{Code::kInvalidArgument,
                 format_text("a squared norm of {} to be clipped to {}, expected finite numbers and a bound above 0",
                             norm_squared, bound)};
  }
  return ops::clip_factor(norm_squared, bound);
}

ScreenReport scale_in_place(std::span<float> values, double factor, cpu::Target target) {
  FLUVIAL_CHECK(factor >= 0 && factor <= 1, "a factor from 0 to 1");
  std::array<double, cpu::kSquareLanes> lanes{};
  const std::uint32_t most = cpu::reduce_loops(target).scale(values.data(), values.size(), factor, lanes.data());
  return {.max_abs = ops::bits_float(most), .norm_squared = sum_lanes(lanes)};
}

Result<ScreenReport> clip_norm(std::span<float> values, double bound, std::uint64_t first_value, cpu::Target target) {
  FLUVIAL_ASSIGN(const ScreenReport report, screen(values, first_value, target));
  FLUVIAL_ASSIGN(const double factor, clip_factor(report.norm_squared, bound));
  if (factor == 1.0) return report;
  return scale_in_place(values, factor, target);
}

}  // namespace fluvial::kernels

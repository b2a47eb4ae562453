#include "kernels/vector.h"

#include <algorithm>
#include <array>

#include "core/base/format.h"
#include "kernels/fixed.h"
#include "kernels/ops/bits.h"
#include "kernels/pieces.h"

namespace fluvial::kernels {

Result<ScreenReport> screen(std::span<const float> values, std::uint64_t first_value, cpu::Target target) {
  std::array<double, cpu::kSquareLanes> lanes{};
  const std::uint32_t most = cpu::loops(target).screen(values.data(), values.size(), lanes.data());
  if (most >= ops::kInfinityBits) return not_finite(values, first_value);
  return ScreenReport{.max_abs = ops::bits_float(most), .norm_squared = sum_lanes(lanes)};
}

Result<Weights> check_weights(std::span<const std::uint32_t> weights, std::size_t vector_count) {
  if (weights.empty() || weights.size() != vector_count) {
    return Error{Code::kInvalidArgument, format_text("{} vectors with {} weights", vector_count, weights.size())};
  }
  Weights checked;
  for (const std::uint32_t weight : weights) {
    if (weight == 0 || weight >= kWeightEnd) {
      return Error{Code::kInvalidArgument, format_text("weight {}, expected 1 to {}", weight, kWeightEnd - 1)};
    }
    checked.each.push_back(static_cast<double>(weight));
    checked.total += checked.each.back();
  }
  return checked;
}

// A piece that stays in the cache after the other.
void weighted_sum(std::span<const std::span<const float>> vectors, std::span<const double> coefficients, double divisor,
                  std::span<float> out) {
  for (const std::span<const float> vector : vectors) {
    FLUVIAL_CHECK(vector.size() == out.size(), "vectors of different lengths");
  }
  std::array<double, kPieceValues> sum;
  for (std::size_t first = 0; first < out.size(); first += kPieceValues) {
    const std::size_t length = std::min(kPieceValues, out.size() - first);
    std::fill_n(sum.begin(), length, 0.0);
    for (std::size_t k = 0; k < vectors.size(); ++k) {
      cpu::loops().weighted_add(vectors[k].data() + first, length, coefficients[k], sum.data());
    }
    cpu::loops().divide(sum.data(), length, divisor, out.data() + first);
  }
}

Status weighted_mean(std::span<const std::span<const float>> vectors, std::span<const std::uint32_t> weights,
                     std::span<float> out) {
  FLUVIAL_ASSIGN(const Weights checked, check_weights(weights, vectors.size()));
  weighted_sum(vectors, checked.each, checked.total, out);
  return {};
}

void combine(std::span<const std::span<const float>> vectors, std::span<const double> coefficients,
             std::span<float> out) {
  FLUVIAL_CHECK(!vectors.empty() && vectors.size() == coefficients.size(), "as many coefficients as vectors");
  weighted_sum(vectors, coefficients, 1, out);
}

void pseudo_gradient(std::span<const float> base, std::span<const float> local, std::span<const float> residual,
                     std::span<float> out) {
  FLUVIAL_CHECK(
      base.size() == out.size() && local.size() == out.size() && (residual.empty() || residual.size() == out.size()),
      "vectors of different lengths");
  cpu::loops().pseudo_gradient(base.data(), local.data(), residual.empty() ? nullptr : residual.data(), out.size(),
                               out.data());
}

void add_residual(std::span<const float> update, std::span<const float> residual, std::span<float> out) {
  FLUVIAL_CHECK(update.size() == out.size() && (residual.empty() || residual.size() == out.size()),
                "vectors of different lengths");
  cpu::loops().fold(update.data(), residual.empty() ? nullptr : residual.data(), out.size(), out.data());
}

void apply_sgd(double lr, std::span<const float> mean, std::span<float> model) {
  FLUVIAL_CHECK(mean.size() == model.size(), "vectors of different lengths");
  cpu::loops().sgd(lr, mean.data(), mean.size(), model.data());
}

void apply_momentum(double lr, double momentum, std::span<const float> mean, std::span<float> moment,
                    std::span<float> model) {
  FLUVIAL_CHECK(mean.size() == model.size() && mean.size() == moment.size(), "vectors of different lengths");
  cpu::loops().momentum(lr, momentum, mean.data(), mean.size(), moment.data(), model.data());
}

}  // namespace fluvial::kernels

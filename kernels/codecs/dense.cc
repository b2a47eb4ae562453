#include "kernels/codecs/dense.h"

#include <algorithm>

#include "kernels/ops/bits.h"
#include "kernels/ops/fixed.h"

namespace fluvial::kernels {
namespace {

using Piece = std::array<float, kPieceValues>;

std::span<float> piece_of(Piece& piece, std::size_t first, std::size_t value_count) {
  return std::span(piece).first(std::min(kPieceValues, value_count - first));
}

}  // namespace

Result<std::size_t> DenseCodec::encode_chunk(const EncodePlan& plan, std::size_t chunk_index,
                                             std::span<const float> chunk, MutableByteSpan out) const {
  FLUVIAL_TRY(check_encode(*this, plan, chunk_index, chunk, out));
  return encode(chunk, plan.layout.first_value(chunk_index), plan.key, out.data(), {});
}

Status DenseCodec::decode_chunk(ByteSpan bytes, std::span<float> out) const {
  FLUVIAL_TRY(check_format(bytes, out.size()));
  decode_piece(bytes, out.size(), 0, out);
  return {};
}

// Rounding half to even is symmetric, so the negated factor takes back exactly what was added.
void DenseCodec::take_back(ByteSpan bytes, double factor, std::size_t end, std::span<std::int64_t> sum) const {
  Piece piece;
  for (std::size_t first = 0; first < end; first += kPieceValues) {
    const std::span<float> values = piece_of(piece, first, sum.size());
    decode_piece(bytes, sum.size(), first, values);
    loops_.accumulate_large(values.data(), values.size(), -factor, sum.data() + first);
  }
}

bool DenseCodec::accumulate_small_piece(ByteSpan, std::size_t, double, std::size_t, std::span<std::int64_t>) const {
  return false;
}

// False, and the piece's sums unchanged, when a term is beyond 2^62.
bool DenseCodec::accumulate_piece(ByteSpan bytes, std::size_t first, double factor, std::size_t length,
                                  std::span<std::int64_t> sum) const {
  if (accumulate_small_piece(bytes, first, factor, length, sum)) return true;
  Piece piece;
  const std::span<float> values = std::span(piece).first(length);
  decode_piece(bytes, sum.size(), first, values);
  const float max_abs = ops::bits_float(loops_.max_bits(values.data(), values.size()));
  const double most = ops::fixed_product(max_abs, factor);
  if (!(most <= ops::kTermLimit)) return false;  // NaN too
  const auto accumulate = most < ops::kSmallTermLimit ? loops_.accumulate_small : loops_.accumulate_large;
  accumulate(values.data(), values.size(), factor, sum.data() + first);
  return true;
}

Status DenseCodec::decode_accumulate_chunk(ByteSpan bytes, std::uint32_t weight, int scale_bits,
                                           std::span<std::int64_t> sum) const {
  FLUVIAL_ASSIGN(const double factor, term_factor(weight, scale_bits));
  FLUVIAL_TRY(check_format(bytes, sum.size()));
  for (std::size_t first = 0; first < sum.size(); first += kPieceValues) {
    const std::size_t length = std::min(kPieceValues, sum.size() - first);
    if (!accumulate_piece(bytes, first, factor, length, sum)) [[unlikely]] {
      take_back(bytes, factor, first, sum);
      return not_screened();
    }
  }
  return {};
}

Result<ScreenReport> DenseCodec::screen_chunk(ByteSpan bytes, std::size_t value_count,
                                              std::uint64_t first_value) const {
  FLUVIAL_TRY(check_format(bytes, value_count));
  Piece piece;
  std::array<double, cpu::kSquareLanes> lanes{};
  std::uint32_t most = 0;
  for (std::size_t first = 0; first < value_count; first += kPieceValues) {
    const std::span<float> values = piece_of(piece, first, value_count);
    decode_piece(bytes, value_count, first, values);
    most = std::max(most, loops_.screen(values.data(), values.size(), lanes.data()));
    if (most >= ops::kInfinityBits) [[unlikely]]
      return not_finite(values, first_value + first);
  }
  return ScreenReport{.max_abs = ops::bits_float(most), .norm_squared = sum_lanes(lanes)};
}

void DenseCodec::residual_piece(ByteSpan bytes, std::size_t first, std::span<const float> values, std::size_t length,
                                float* out) const {
  Piece piece;
  const std::span<float> decoded = std::span(piece).first(length);
  decode_piece(bytes, values.size(), first, decoded);
  loops_.difference(values.data() + first, decoded.data(), length, out + first);
}

Status DenseCodec::residual_chunk(std::span<const float> values, ByteSpan bytes, std::span<float> out) const {
  FLUVIAL_CHECK(out.size() == values.size(), "a residual of another length");
  FLUVIAL_TRY(check_format(bytes, values.size()));
  residual_of(values, bytes, out);
  return {};
}

void DenseCodec::residual_of(std::span<const float> values, ByteSpan bytes, std::span<float> out) const {
  for (std::size_t first = 0; first < values.size(); first += kPieceValues) {
    residual_piece(bytes, first, values, std::min(kPieceValues, values.size() - first), out.data());
  }
}

Result<std::size_t> DenseCodec::encode_residual_chunk(const EncodePlan& plan, std::size_t chunk_index,
                                                      std::span<const float> chunk, MutableByteSpan out,
                                                      std::span<float> residual) const {
  FLUVIAL_TRY(check_encode(*this, plan, chunk_index, chunk, out));
  FLUVIAL_CHECK(residual.size() == chunk.size(), "a residual of another length");
  return encode(chunk, plan.layout.first_value(chunk_index), plan.key, out.data(), residual);
}

void DenseCodec::add_piece(ByteSpan bytes, std::size_t first, float weight, std::size_t length,
                           std::span<float> sum) const {
  Piece piece;
  const std::span<float> decoded = std::span(piece).first(length);
  decode_piece(bytes, sum.size(), first, decoded);
  loops_.add_scaled(decoded.data(), length, weight, sum.data() + first);
}

Status DenseCodec::decode_add_chunk(ByteSpan bytes, float weight, std::span<float> sum) const {
  FLUVIAL_TRY(check_format(bytes, sum.size()));
  for (std::size_t first = 0; first < sum.size(); first += kPieceValues) {
    add_piece(bytes, first, weight, std::min(kPieceValues, sum.size() - first), sum);
  }
  return {};
}

}  // namespace fluvial::kernels

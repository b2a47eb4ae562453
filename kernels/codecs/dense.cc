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

Result<EncodePlan> DenseCodec::prepare(const VectorSchema& schema, std::span<const float> vector, const StreamKey& key,
                                       const PassInput& input, MutableByteSpan state, MutableByteSpan workspace) const {
  FLUVIAL_TRY(check_prepare(*this, schema, vector, input, state, workspace));
  return EncodePlan{.layout = schema.layout, .key = key, .pass = input.pass, .values = vector};
}

Result<std::size_t> DenseCodec::encode_chunk(const EncodePlan& plan, std::size_t chunk_index,
                                             std::span<const float> chunk, MutableByteSpan out) const {
  FLUVIAL_TRY(check_encode(*this, plan, chunk_index, chunk, out));
  return encode(chunk, plan.layout.first_value(chunk_index), plan.key, out.data());
}

Status DenseCodec::decode_chunk(ByteSpan bytes, std::span<float> out) const {
  FLUVIAL_TRY(check_format(bytes, out.size()));
  decode_piece(bytes, out.size(), 0, out);
  return {};
}

void DenseCodec::accumulate_piece(std::span<const float> piece, double factor, double most, std::int64_t* sum) const {
  const auto accumulate = most < ops::kSmallTermLimit ? loops_.accumulate_small : loops_.accumulate_large;
  accumulate(piece.data(), piece.size(), factor, sum);
}

// Rounding half to even is symmetric, so the negated factor takes back exactly what was added.
void DenseCodec::take_back(ByteSpan bytes, double factor, std::size_t end, std::span<std::int64_t> sum) const {
  Piece piece;
  for (std::size_t first = 0; first < end; first += kPieceValues) {
    const std::span<float> values = piece_of(piece, first, sum.size());
    decode_piece(bytes, sum.size(), first, values);
    accumulate_piece(values, -factor, ops::kTermLimit, sum.data() + first);
  }
}

Status DenseCodec::decode_accumulate_chunk(ByteSpan bytes, std::uint32_t weight, int scale_bits,
                                           std::span<std::int64_t> sum) const {
  FLUVIAL_ASSIGN(const double factor, term_factor(weight, scale_bits));
  FLUVIAL_TRY(check_format(bytes, sum.size()));
  Piece piece;
  for (std::size_t first = 0; first < sum.size(); first += kPieceValues) {
    const std::span<float> values = piece_of(piece, first, sum.size());
    decode_piece(bytes, sum.size(), first, values);
    const float max_abs = ops::bits_float(loops_.max_bits(values.data(), values.size()));
    const double most = ops::fixed_product(max_abs, factor);
    if (!(most <= ops::kTermLimit)) [[unlikely]] {  // NaN too
      take_back(bytes, factor, first, sum);
      return not_screened();
    }
    accumulate_piece(values, factor, most, sum.data() + first);
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

Status DenseCodec::residual_chunk(std::span<const float> values, ByteSpan bytes, std::span<float> out) const {
  FLUVIAL_CHECK(out.size() == values.size(), "a residual of another length");
  FLUVIAL_TRY(check_format(bytes, values.size()));
  Piece piece;
  for (std::size_t first = 0; first < values.size(); first += kPieceValues) {
    const std::span<float> decoded = piece_of(piece, first, values.size());
    decode_piece(bytes, values.size(), first, decoded);
    loops_.difference(values.data() + first, decoded.data(), decoded.size(), out.data() + first);
  }
  return {};
}

Status DenseCodec::decode_add_chunk(ByteSpan bytes, float weight, std::span<float> sum) const {
  FLUVIAL_TRY(check_format(bytes, sum.size()));
  Piece piece;
  for (std::size_t first = 0; first < sum.size(); first += kPieceValues) {
    const std::span<float> decoded = piece_of(piece, first, sum.size());
    decode_piece(bytes, sum.size(), first, decoded);
    loops_.add_scaled(decoded.data(), decoded.size(), weight, sum.data() + first);
  }
  return {};
}

}  // namespace fluvial::kernels

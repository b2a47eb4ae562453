#include "core/aggregate/accumulator.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace fluvial::aggregate {
namespace {

constexpr std::int64_t kNoInteger = std::numeric_limits<std::int64_t>::min();  // the identity of the maximum

}  // namespace

Accumulator::Accumulator(kernels::ChunkLayout layout, std::size_t integer_count, int scale_bits)
    : layout_(layout), scale_bits_(scale_bits), sum_(layout.value_count, 0), integers_(integer_count, kNoInteger) {
  FLUVIAL_CHECK(layout.chunk_values >= 1 && layout.chunk_values <= kernels::kChunkValuesMax,
                "chunks of no valid length");
}

Status Accumulator::check_chunk(std::size_t chunk_index) const {
  if (chunk_index < layout_.chunk_count()) return {};
  return Error{Code::kInvalidArgument, fmt::format("chunk {}, expected below {}", chunk_index, layout_.chunk_count())};
}

Status Accumulator::add_chunk(const kernels::Codec& codec, std::size_t chunk_index, ByteSpan bytes,
                              std::uint32_t weight, int down_bits) {
  FLUVIAL_TRY(check_chunk(chunk_index));
  return codec.decode_accumulate_chunk(bytes, weight, scale_bits_ - down_bits, sum_of(chunk_index));
}

Status Accumulator::merge_chunk(std::size_t chunk_index, ByteSpan packed) {
  FLUVIAL_TRY(check_chunk(chunk_index));
  return kernels::merge_chunk(packed, sum_of(chunk_index));
}

Buffer Accumulator::pack_chunk(std::size_t chunk_index) const {
  FLUVIAL_CHECK(chunk_index < layout_.chunk_count(), "packing a chunk that is not there");
  const std::span<const std::int64_t> sum = layout_.of(std::span(sum_), chunk_index);
  Buffer packed(kernels::packed_bytes_max(sum.size()));
  packed.shrink(kernels::pack_chunk(sum, packed.span()));
  return packed;
}

Status Accumulator::mean(std::uint64_t first_value, std::uint64_t total_weight, std::span<float> out,
                         int weight_bits) const {
  if (first_value > sum_.size() || out.size() > sum_.size() - first_value) {
    return Error{Code::kInvalidArgument,
                 fmt::format("{} means from value {} on, of {}", out.size(), first_value, sum_.size())};
  }
  if (total_weight == 0 || total_weight >= kernels::kWeightSumEnd) {
    return Error{Code::kInvalidArgument, fmt::format("a total weight of {}, expected 1 to 2^53 - 1", total_weight)};
  }
  if (weight_bits < 0 || weight_bits > scale_bits_) {
    return Error{Code::kInvalidArgument,
                 fmt::format("weights in 2^-{}, at a scale of 2^-{}", weight_bits, scale_bits_)};
  }
  const auto sums = std::span(sum_).subspan(static_cast<std::size_t>(first_value), out.size());
  kernels::mean_of_sums(sums, scale_bits_ - weight_bits, total_weight, out);
  return {};
}

Status Accumulator::add_integers(std::span<const std::int64_t> integers) {
  if (integers.size() != integers_.size()) {
    return Error{Code::kInvalidArgument, fmt::format("{} integers, expected {}", integers.size(), integers_.size())};
  }
  for (std::size_t i = 0; i < integers.size(); ++i) integers_[i] = std::max(integers_[i], integers[i]);
  return {};
}

void Accumulator::reset(int scale_bits) {
  scale_bits_ = scale_bits;
  std::fill(sum_.begin(), sum_.end(), 0);
  std::fill(integers_.begin(), integers_.end(), kNoInteger);
}

}  // namespace fluvial::aggregate

// A model is one flat vector of fp32 values (its tensors, in schema order), cut into chunks of equal length; the last
// may be shorter. Chunks are encoded, sent, staged, decoded and summed independently of each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fluvial::kernels {

inline constexpr std::uint64_t kChunkValuesDefault = std::uint64_t{1} << 20;  // 4 MiB of fp32
inline constexpr std::uint64_t kChunkValuesMax = std::uint64_t{1} << 26;

struct ChunkLayout {
  std::uint64_t value_count = 0;
  std::uint64_t chunk_values = kChunkValuesDefault;  // 1 to kChunkValuesMax

  constexpr std::size_t chunk_count() const {
    return static_cast<std::size_t>(value_count / chunk_values + (value_count % chunk_values != 0 ? 1 : 0));
  }
  constexpr std::uint64_t first_value(std::size_t chunk_index) const { return chunk_index * chunk_values; }
  // How many values chunk `chunk_index` holds: chunk_values for all but the last.
  constexpr std::size_t size(std::size_t chunk_index) const {
    const std::uint64_t left = value_count - first_value(chunk_index);
    return static_cast<std::size_t>(left < chunk_values ? left : chunk_values);
  }
  // The part of a whole vector (or of a state beside it) that chunk `chunk_index` covers.
  template <typename T>
  std::span<T> of(std::span<T> vector, std::size_t chunk_index) const {
    return vector.subspan(static_cast<std::size_t>(first_value(chunk_index)), size(chunk_index));
  }
  bool operator==(const ChunkLayout&) const = default;
};

// One tensor as a codec needs to know it: its dimensions and where it begins in the flat vector. A view.
struct TensorShape {
  std::span<const std::uint64_t> dims;
  std::uint64_t offset_values = 0;
};

struct VectorSchema {
  ChunkLayout layout;
  std::span<const TensorShape> tensors;  // may stay empty for codecs that treat all values alike (all of today's)
};

}  // namespace fluvial::kernels

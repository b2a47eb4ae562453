// Shared by codecs that cut a chunk into blocks with a scale each and draw random bits for their codes. Internal.
#pragma once

#include <array>
#include <cstring>

#include "kernels/codecs/dense.h"
#include "kernels/codecs/options.h"
#include "kernels/cpu/dense_loops.h"
#include "kernels/cpu/qsgd_loops.h"
#include "kernels/ops/philox.h"

namespace fluvial::kernels {

// The random bits of one block, in the order of its coordinates.
class BlockRandom {
 public:
  BlockRandom(const cpu::Loops& loops, const StreamKey& key)
      : loops_(loops), stream_(ops::random_stream(key.run, key.round, key.site)) {}

  // For value_count (at most kBlockValuesMax) coordinates; holds until the next call.
  const std::uint16_t* of(std::uint64_t first_coordinate, std::size_t value_count) {
    const auto skip = static_cast<std::size_t>(first_coordinate % ops::kRandomGroup);
    const auto groups = static_cast<std::size_t>((skip + value_count + ops::kRandomGroup - 1) / ops::kRandomGroup);
    loops_.random(stream_, first_coordinate / ops::kRandomGroup, groups, bits_.data());
    return bits_.data() + skip;
  }

 private:
  const cpu::Loops& loops_;
  ops::RandomStream stream_;
  std::array<std::uint16_t, kBlockValuesMax + 2 * ops::kRandomGroup> bits_;
};

// A chunk's blocks, counted from its first value; the last may be shorter.
struct Blocks {
  std::size_t block_values;
  std::size_t value_count;

  std::size_t count() const { return (value_count + block_values - 1) / block_values; }
  std::size_t first(std::size_t block) const { return block * block_values; }
  std::size_t size(std::size_t block) const { return std::min(block_values, value_count - first(block)); }
};

// Codes as the loops over int8 take them.
inline const std::byte* as_bytes(const std::int8_t* codes) { return reinterpret_cast<const std::byte*>(codes); }

inline float load_float(ByteSpan bytes, std::size_t at) {
  float value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}
inline void store_float(std::byte* out, float value) { std::memcpy(out, &value, sizeof(value)); }

}  // namespace fluvial::kernels

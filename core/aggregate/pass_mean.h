// The mean of a pass as it travels down (docs/design/phases.md): the attempt that it is of, then its values. So no two
// attempts have means of one digest, however alike their values are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/bytes.h"
#include "core/base/ids.h"
#include "core/base/result.h"

namespace fluvial::aggregate {

inline constexpr std::size_t kMeanHeadBytes = 16;  // u64 epoch, u32 attempt, u32 pass, little-endian; then fp32

struct MeanOf {
  Epoch epoch;
  AttemptId attempt;
  std::uint32_t pass = 0;
  bool operator==(const MeanOf&) const = default;
};

// Room for `value_count` values behind their head. Buffers are aligned for both.
Buffer begin_mean(const MeanOf& of, std::uint64_t value_count);
std::span<float> mean_values(Buffer& mean);
std::span<const float> mean_values(ByteSpan mean);  // of one that was made here, or that check_mean() has seen
// kDataLoss: it is of another attempt or pass, or no mean.
Status check_mean(const MeanOf& of, ByteSpan mean);

}  // namespace fluvial::aggregate

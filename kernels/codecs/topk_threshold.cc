#include "kernels/codecs/topk_threshold.h"

#include <algorithm>
#include <array>
#include <memory>

#include "core/base/check.h"
#include "kernels/codecs/common.h"
#include "kernels/ops/bits.h"

namespace fluvial::kernels {
namespace {

// One histogram over the digits of the magnitudes whose higher bits equal `prefix`.
class Digits {
 public:
  explicit Digits(MutableByteSpan workspace) {
    void* at = workspace.data();
    std::size_t room = workspace.size();
    FLUVIAL_CHECK(std::align(alignof(std::uint64_t), kThresholdWorkspaceBytes, at, room) == workspace.data(),
                  "the workspace is too small or not aligned to 8 bytes");
    bins_ = std::span(static_cast<std::uint64_t*>(at), kThresholdBins * kThresholdWays);
  }

  void clear() { std::fill(bins_.begin(), bins_.end(), 0); }

  void count_all(std::span<const float> values, int shift) {
    std::size_t i = 0;
    for (; i + kThresholdWays <= values.size(); i += kThresholdWays) {
      for (std::size_t way = 0; way < kThresholdWays; ++way) {
        ++bins_[way * kThresholdBins + (ops::magnitude_bits(values[i + way]) >> shift)];
      }
    }
    for (; i < values.size(); ++i) ++bins_[ops::magnitude_bits(values[i]) >> shift];
  }

  void count(std::uint32_t digit) { ++bins_[digit]; }

  // The greatest digit with at least `k` magnitudes at or above it, of which `equal` have that digit; takes those
  // strictly above it off `k`.
  std::uint32_t digit_of(std::uint64_t* k, std::uint64_t* equal) const {
    for (std::size_t digit = kThresholdBins; digit-- > 0;) {
      std::uint64_t here = 0;
      for (std::size_t way = 0; way < kThresholdWays; ++way) here += bins_[way * kThresholdBins + digit];
      *equal = here;
      if (here >= *k) return static_cast<std::uint32_t>(digit);
      *k -= here;
    }
    return 0;
  }

 private:
  std::span<std::uint64_t> bins_;
};

// Calls visit(coordinate, magnitude bits) for every magnitude of at least `least`, until it returns false.
template <typename Visit>
void for_each_at_least(std::span<const float> vector, std::uint32_t least, const cpu::Loops& loops, Visit visit) {
  std::array<std::uint32_t, kPieceValues> selected;
  for (std::size_t first = 0; first < vector.size(); first += kPieceValues) {
    const std::size_t length = std::min(kPieceValues, vector.size() - first);
    const std::size_t found = loops.select(vector.data() + first, length, least, selected.data());
    for (std::size_t i = 0; i < found; ++i) {
      const std::size_t index = first + selected[i];
      if (!visit(index, ops::magnitude_bits(vector[index]))) return;
    }
  }
}

}  // namespace

Kth find_kth(std::span<const float> values, std::uint64_t k, MutableByteSpan workspace, const cpu::Loops& loops) {
  Digits digits(workspace);
  digits.clear();
  digits.count_all(values, 20);
  std::uint64_t equal = 0;
  std::uint32_t bits = digits.digit_of(&k, &equal) << 20;
  for (const int shift : {10, 0}) {
    digits.clear();
    const int above = shift + 10;
    for_each_at_least(values, bits, loops, [&](std::size_t, std::uint32_t magnitude) {
      if (magnitude >> above == bits >> above) digits.count((magnitude >> shift) & 0x3ffU);
      return true;
    });
    bits |= digits.digit_of(&k, &equal) << shift;
  }
  if (bits == 0) return {};  // fewer than k are not zero: all of those
  return {.bits = bits, .ties = k, .equal = equal};
}

Threshold find_threshold(std::span<const float> vector, std::uint64_t k, MutableByteSpan workspace,
                         const cpu::Loops& loops) {
  Kth kth = find_kth(vector, k, workspace, loops);
  if (kth.ties == kth.equal) return {.bits = kth.bits, .ties_end = vector.size()};
  Threshold threshold{.bits = kth.bits, .ties_end = 0};
  for_each_at_least(vector, kth.bits, loops, [&](std::size_t index, std::uint32_t magnitude) {
    if (magnitude != kth.bits) return true;
    threshold.ties_end = index + 1;
    return --kth.ties > 0;
  });
  return threshold;
}

}  // namespace fluvial::kernels

// How many entries a sparse codec sends, and how topk samples a vector for them: the same on the CPU and on devices.
// Internal.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/ops/philox.h"

namespace fluvial::kernels {

// max(1, ceil(ratio * value_count)), the product in fp64.
inline std::uint64_t entries_wanted(double ratio, std::uint64_t value_count) {
  const auto wanted = static_cast<std::uint64_t>(std::ceil(ratio * static_cast<double>(value_count)));
  return std::clamp<std::uint64_t>(wanted, 1, std::max<std::uint64_t>(value_count, 1));
}

// How a vector is sampled for k entries, and how much may be gathered.
struct SamplePlan {
  std::uint64_t size = 0;      // values in the sample; 0: no sample, the exact way
  std::uint64_t rank = 0;      // expected in the sample among the k greatest
  std::uint64_t low_rank = 0;  // whose magnitude bounds the threshold from below, but for one vector in millions
  std::uint64_t room = 0;      // for gathered values
};

inline SamplePlan sample_plan(std::uint64_t value_count, std::uint64_t k) {
  constexpr std::uint64_t kSampleMax = 100'000;
  constexpr std::uint64_t kStrideMin = 32;    // one value in so many is sampled, of vectors below 3.2 million
  constexpr std::uint64_t kVectorMin = 1024;  // below, histograms are as quick
  constexpr std::uint64_t kSentPartMax = 8;   // one in so many at most is gathered
  if (value_count < kVectorMin || k > value_count / kSentPartMax) return {};
  SamplePlan plan;
  plan.size = std::min(kSampleMax, value_count / kStrideMin);
  const double scale = static_cast<double>(value_count) / static_cast<double>(plan.size);
  const double rank = static_cast<double>(k) / scale;
  const double low_rank = rank + 5.5 * std::sqrt(rank) + 10;
  plan.rank = static_cast<std::uint64_t>(rank);
  plan.low_rank = std::min(static_cast<std::uint64_t>(low_rank), plan.size);
  const double most = scale * (low_rank + 6 * std::sqrt(low_rank));
  plan.room = std::min(value_count, static_cast<std::uint64_t>(most));
  return plan.room <= UINT32_MAX ? plan : SamplePlan{};
}

// Whether a threshold from the sample may be used, when `reached` values reach it.
FLUVIAL_HD bool sample_serves(std::uint64_t reached, std::uint64_t k, std::uint64_t room) {
  return reached <= room && 2 * reached >= k && reached <= 2 * k;
}

// Value `index` of the sample is one of its stride, at a place hashed from the index, so that no period in the vector
// meets a period of the sample.
FLUVIAL_HD std::uint64_t sample_place(std::uint64_t index, std::uint64_t stride) {
  return index * stride + (((ops::mix64(index) >> 32) * stride) >> 32);
}

}  // namespace fluvial::kernels

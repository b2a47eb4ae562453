#include "kernels/codecs/topk_select.h"

#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "kernels/codecs/sparse.h"
#include "kernels/ops/bits.h"
#include "kernels/ops/philox.h"

namespace fluvial::kernels {
namespace {

constexpr std::uint64_t kSampleMax = 100'000;
constexpr std::uint64_t kSampleStrideMin = 32;     // one value in so many is sampled, of vectors below 3.2 million
constexpr std::uint64_t kSampledVectorMin = 1024;  // below, histograms are as quick
constexpr std::uint64_t kSentPartMax = 8;          // one in so many at most is gathered

// The workspace, laid out. The sample lies where values are gathered later.
struct Memory {
  MutableByteSpan bins;
  std::span<std::uint64_t> chunk_ends;
  std::span<std::uint32_t> indices;
  std::span<float> values;
  std::span<float> sample;
};

template <typename T>
std::span<T> take(MutableByteSpan& from, std::size_t count) {
  const MutableByteSpan part = from.first(count * sizeof(T));
  from = from.subspan(part.size());
  return {reinterpret_cast<T*>(part.data()), count};  // NOLINT: the workspace as numbers
}

Memory lay_out(const ChunkLayout& layout, const SamplePlan& plan, MutableByteSpan workspace) {
  Memory memory;
  memory.bins = take<std::byte>(workspace, kThresholdWorkspaceBytes);
  if (plan.size == 0) return memory;
  memory.chunk_ends = take<std::uint64_t>(workspace, layout.chunk_count() + 1);
  MutableByteSpan gathered = workspace;
  memory.sample = take<float>(workspace, plan.size);
  memory.indices = take<std::uint32_t>(gathered, plan.room);
  memory.values = take<float>(gathered, plan.room);
  return memory;
}

// One value of every stride, at a place that is hashed from the stride's number, so that no period in the vector meets
// a period of the sample.
void draw_sample(std::span<const float> vector, std::span<float> sample) {
  const std::uint64_t stride = vector.size() / sample.size();
  for (std::size_t i = 0; i < sample.size(); ++i) {
    const std::uint64_t place = ((ops::mix64(i) >> 32) * stride) >> 32;
    sample[i] = vector[i * stride + place];
  }
}

// Gathers what is at least `bits` in magnitude; false when there is more than there is room for.
bool gather(const ChunkLayout& layout, std::span<const float> vector, std::uint32_t bits, const cpu::SparseLoops& loops,
            Memory& memory) {
  std::size_t count = 0;
  memory.chunk_ends[0] = 0;
  for (std::size_t chunk = 0; chunk < layout.chunk_count(); ++chunk) {
    const std::span<const float> values = layout.of(vector, chunk);
    for (std::size_t first = 0; first < values.size(); first += kPieceValues) {
      const std::size_t length = std::min(kPieceValues, values.size() - first);
      if (memory.indices.size() - count < length) return false;
      count += loops.gather(values.data() + first, length, bits, static_cast<std::uint32_t>(first),
                            memory.indices.data() + count, memory.values.data() + count);
    }
    memory.chunk_ends[chunk + 1] = count;
  }
  memory.indices = memory.indices.first(count);
  memory.values = memory.values.first(count);
  return true;
}

// Keeps what is selected among the gathered values, whose order stays.
void keep_selected(const Threshold& threshold, Memory& memory) {
  std::size_t kept = 0;
  std::size_t entry = 0;
  for (std::size_t chunk = 0; chunk + 1 < memory.chunk_ends.size(); ++chunk) {
    for (const std::size_t end = memory.chunk_ends[chunk + 1]; entry < end; ++entry) {
      const float value = memory.values[entry];
      const std::uint32_t magnitude = ops::magnitude_bits(value);
      memory.values[kept] = value;
      memory.indices[kept] = memory.indices[entry];
      kept += magnitude > threshold.bits || (magnitude == threshold.bits && entry < threshold.ties_end) ? 1 : 0;
    }
    memory.chunk_ends[chunk + 1] = kept;
  }
  memory.indices = memory.indices.first(kept);
  memory.values = memory.values.first(kept);
}

Status check_finite(std::span<const float> values, const cpu::Loops& loops, std::span<const float> vector) {
  if (loops.max_bits(values.data(), values.size()) < ops::kInfinityBits) return {};
  return not_encodable(vector, 0);
}

}  // namespace

std::uint64_t entries_wanted(double ratio, std::uint64_t value_count) {
  const auto wanted = static_cast<std::uint64_t>(std::ceil(ratio * static_cast<double>(value_count)));
  return std::clamp<std::uint64_t>(wanted, 1, std::max<std::uint64_t>(value_count, 1));
}

SamplePlan sample_plan(std::uint64_t value_count, std::uint64_t k) {
  if (value_count < kSampledVectorMin || k > value_count / kSentPartMax) return {};
  SamplePlan plan;
  plan.size = std::min(kSampleMax, value_count / kSampleStrideMin);
  const double scale = static_cast<double>(value_count) / static_cast<double>(plan.size);
  const double rank = static_cast<double>(k) / scale;
  const double low_rank = rank + 5.5 * std::sqrt(rank) + 10;
  plan.rank = static_cast<std::uint64_t>(rank);
  plan.low_rank = std::min(static_cast<std::uint64_t>(low_rank), plan.size);
  const double most = scale * (low_rank + 6 * std::sqrt(low_rank));
  plan.room = std::min(value_count, static_cast<std::uint64_t>(most)) + kPieceValues;
  return plan;
}

std::size_t selection_workspace_bytes(const ChunkLayout& layout, std::uint64_t k) {
  const SamplePlan plan = sample_plan(layout.value_count, k);
  if (plan.size == 0) return kThresholdWorkspaceBytes;
  const std::uint64_t gathered =
      std::max(plan.room * (sizeof(std::uint32_t) + sizeof(float)), plan.size * sizeof(float));
  return kThresholdWorkspaceBytes + (layout.chunk_count() + 1) * sizeof(std::uint64_t) +
         static_cast<std::size_t>(gathered);
}

Result<Selection> select_entries(const ChunkLayout& layout, std::span<const float> vector, const SelectOptions& options,
                                 MutableByteSpan workspace, const cpu::Loops& loops,
                                 const cpu::SparseLoops& sparse_loops) {
  const SamplePlan plan = sample_plan(vector.size(), options.k);
  Memory memory = lay_out(layout, plan, workspace);
  const bool sampled = options.sampled && plan.rank > 0;
  if (plan.size > 0) {
    draw_sample(vector, memory.sample);
    const std::uint64_t rank = sampled ? plan.rank : plan.low_rank;
    const std::uint32_t bits = std::max(1U, find_threshold(memory.sample, rank, memory.bins, loops).bits);
    if (gather(layout, vector, bits, sparse_loops, memory)) {
      FLUVIAL_TRY(check_finite(memory.values, loops, vector));
      const std::size_t count = memory.values.size();
      const auto result = [&](const Threshold& threshold) {
        return Selection{threshold, memory.chunk_ends, memory.indices, memory.values};
      };
      if (sampled && 2 * count >= options.k && count <= 2 * options.k) {
        return result({.bits = bits, .ties_end = vector.size()});
      }
      // All that is not zero was gathered, or at least as many as are sent.
      if (bits == 1 || count >= options.k) {
        const Threshold threshold = find_threshold(memory.values, options.k, memory.bins, loops);
        keep_selected(threshold, memory);
        return result(threshold);
      }
    }
  }
  FLUVIAL_TRY(check_finite(vector, loops, vector));
  return Selection{.threshold = find_threshold(vector, options.k, memory.bins, loops),
                   .chunk_ends = {},
                   .indices = {},
                   .values = {}};
}

}  // namespace fluvial::kernels

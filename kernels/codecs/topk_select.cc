#include "kernels/codecs/topk_select.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "core/base/check.h"
#include "kernels/codecs/sparse.h"
#include "kernels/ops/bits.h"

namespace fluvial::kernels {
namespace {

constexpr std::uint64_t kBegun = 0x7375727665796564;

template <typename T>
std::span<T> take(MutableByteSpan& from, std::size_t count) {
  const MutableByteSpan part = from.first(count * sizeof(T));
  from = from.subspan(part.size());
  return {reinterpret_cast<T*>(part.data()), count};  // NOLINT: the workspace as numbers
}

void draw_sample(std::span<const float> vector, std::span<float> sample) {
  const std::uint64_t stride = vector.size() / sample.size();
  for (std::size_t i = 0; i < sample.size(); ++i) sample[i] = vector[sample_place(i, stride)];
}

}  // namespace

struct Survey::Head {
  std::uint64_t begun;   // kBegun
  std::uint64_t chunks;  // that were gathered
  std::uint64_t used;    // entries gathered; beyond the room there were more
  std::uint64_t bits;    // the least magnitude that is gathered
};

std::size_t pieces_of_chunk(std::size_t chunk_values) { return (chunk_values + kPieceValues - 1) / kPieceValues; }

std::size_t Survey::workspace_bytes(const ChunkLayout& layout, std::uint64_t k) {
  const SamplePlan plan = sample_plan(layout.value_count, k);
  const std::size_t always = sizeof(Head) + kThresholdWorkspaceBytes;
  if (plan.size == 0) return always;
  const std::uint64_t entries = plan.room * (sizeof(std::uint32_t) + sizeof(float));
  return always + layout.chunk_count() * pieces_of_chunk(layout.size(0)) * sizeof(GatheredPiece) +
         static_cast<std::size_t>(std::max(entries, plan.size * sizeof(float)));
}

Survey::Survey(const ChunkLayout& layout, const SelectOptions& options, MutableByteSpan workspace,
               const cpu::Loops& loops, const cpu::SparseLoops& sparse_loops)
    : layout_(layout),
      options_(options),
      plan_(sample_plan(layout.value_count, options.k)),
      loops_(loops),
      sparse_loops_(sparse_loops),
      head_(nullptr) {
  FLUVIAL_CHECK(reinterpret_cast<std::uintptr_t>(workspace.data()) % alignof(std::uint64_t) == 0,  // NOLINT: alignment
                "the workspace is not aligned to 8 bytes");
  head_ = take<Head>(workspace, 1).data();
  bins_ = take<std::byte>(workspace, kThresholdWorkspaceBytes);
  if (plan_.size == 0) return;
  pieces_ = take<GatheredPiece>(workspace, layout.chunk_count() * pieces_of_chunk(layout.size(0)));
  MutableByteSpan for_sample = workspace;
  sample_ = take<float>(for_sample, plan_.size);
  indices_ = take<std::uint32_t>(workspace, plan_.room);
  values_ = take<float>(workspace, plan_.room);
}

void Survey::begin(std::span<const float> vector) {
  *head_ = {.begun = kBegun, .chunks = 0, .used = 0, .bits = 1};
  if (plan_.size == 0) return;
  draw_sample(vector, sample_);
  if (plan_.rank == 0) options_.sampled = false;
  head_->bits = find_kth(sample_, options_.sampled ? plan_.rank : plan_.low_rank, bins_, loops_).bits;
}

// Pieces are appended as they come, perhaps from several threads; the table of pieces says where each one is.
void Survey::gather(std::size_t chunk_index, std::span<const float> chunk) {
  const std::atomic_ref<std::uint64_t> used(head_->used);
  const auto bits = static_cast<std::uint32_t>(head_->bits);
  std::array<std::uint32_t, kPieceValues> indices;
  std::array<float, kPieceValues> values;
  GatheredPiece* piece = plan_.size == 0 ? nullptr : &pieces_[chunk_index * pieces_of_chunk(layout_.size(0))];
  for (std::size_t first = 0; piece != nullptr && first < chunk.size(); first += kPieceValues, ++piece) {
    const std::size_t length = std::min(kPieceValues, chunk.size() - first);
    const std::size_t count = sparse_loops_.gather(chunk.data() + first, length, bits,
                                                   static_cast<std::uint32_t>(first), indices.data(), values.data());
    const std::uint64_t at = used.fetch_add(count, std::memory_order_relaxed);
    if (at + count > plan_.room) break;  // finish() sees it
    std::memcpy(indices_.data() + at, indices.data(), count * sizeof(std::uint32_t));
    std::memcpy(values_.data() + at, values.data(), count * sizeof(float));
    *piece = {.first = static_cast<std::uint32_t>(at), .count = static_cast<std::uint32_t>(count)};
  }
  std::atomic_ref<std::uint64_t>(head_->chunks).fetch_add(1, std::memory_order_relaxed);
}

Result<Selection> Survey::finish(std::span<const float> vector) {
  if (head_->begun != kBegun || head_->chunks != layout_.chunk_count()) {
    return Error{Code::kInvalidArgument, "a vector that was not surveyed in this workspace, chunk by chunk"};
  }
  head_->begun = 0;
  if (plan_.size > 0 && head_->used <= plan_.room) {
    const std::size_t count = static_cast<std::size_t>(head_->used);
    const auto bits = static_cast<std::uint32_t>(head_->bits);
    const std::span<const float> values = values_.first(count);
    if (loops_.max_bits(values.data(), count) >= ops::kInfinityBits) return not_encodable(vector, 0);
    Selection selection{.threshold = {.bits = bits, .ties_end = vector.size()},
                        .pieces = pieces_,
                        .indices = indices_.first(count),
                        .values = values};
    const bool sampled = options_.sampled && plan_.rank > 0;
    if (sampled && sample_serves(count, options_.k, plan_.room)) return selection;
    // All values that are not zero were gathered, or at least as many as are sent.
    if (count >= options_.k) {
      const Kth kth = find_kth(values, options_.k, bins_, loops_);
      selection.threshold = {.bits = kth.bits, .ties_end = ties_end(kth)};
      return selection;
    }
    if (bits == 1) return selection;
  }
  if (loops_.max_bits(vector.data(), vector.size()) >= ops::kInfinityBits) return not_encodable(vector, 0);
  return Selection{
      .threshold = find_threshold(vector, options_.k, bins_, loops_), .pieces = {}, .indices = {}, .values = {}};
}

// Where the ties that are selected end: almost always all of them are.
std::uint64_t Survey::ties_end(Kth kth) const {
  if (kth.ties == kth.equal) return layout_.value_count;
  const std::size_t chunk_pieces = pieces_of_chunk(layout_.size(0));
  for (std::size_t chunk = 0; chunk < layout_.chunk_count(); ++chunk) {
    for (std::size_t piece = 0; piece < pieces_of_chunk(layout_.size(chunk)); ++piece) {
      const auto [first, count] = pieces_[chunk * chunk_pieces + piece];
      for (std::size_t entry = first; entry < first + count; ++entry) {
        if (ops::magnitude_bits(values_[entry]) == kth.bits && --kth.ties == 0) {
          return layout_.first_value(chunk) + indices_[entry] + 1;
        }
      }
    }
  }
  return layout_.value_count;
}

}  // namespace fluvial::kernels

// Which coordinates topk sends. Internal.
//
// A sample bounds the threshold from below; one pass over the vector gathers the values above that bound, a little more
// than k values; the exact threshold is selected among those. Where the sample misled (too few or too many were
// gathered), or where so much is sent that gathering does not pay, the exact threshold comes from histograms of the
// whole vector and nothing is kept. Either way the same coordinates are sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/bytes.h"
#include "kernels/codec.h"
#include "kernels/codecs/topk_threshold.h"
#include "kernels/cpu/sparse_loops.h"
#include "kernels/topk_sample.h"

namespace fluvial::kernels {

// The part of a vector that is sent; views into the workspace.
struct Selection {
  Threshold threshold;                     // values above it are sent
  std::span<const GatheredPiece> pieces;   // empty: nothing was kept
  std::span<const std::uint32_t> indices;  // within the chunk
  std::span<const float> values;
};

// How many pieces of kPieceValues values a chunk has, the last one shorter.
std::size_t pieces_of_chunk(std::size_t chunk_values);

struct SelectOptions {
  std::uint64_t k = 1;  // 1 to max(1, number of values)
  // Everything at or above the sample's k-th part is sent: a number k' of values with k / 2 <= k' <= 2 k, or else
  // exactly k. While the sample has m >= 100 of its values among the k greatest, |k' - k| <= 5 k / sqrt(m) but for one
  // vector in a million whose order is random (the deviation of k' is k / sqrt(m)); m is sample_plan().rank.
  bool sampled = false;
};

// The selection over one vector, in a workspace that keeps the findings between the steps: begin(), gather() for every
// chunk, side by side if wanted, and finish(). All with the same arguments here.
class Survey {
 public:
  static std::size_t workspace_bytes(const ChunkLayout& layout, std::uint64_t k);

  // The workspace holds workspace_bytes(), aligned to 8 bytes.
  Survey(const ChunkLayout& layout, const SelectOptions& options, MutableByteSpan workspace, const cpu::Loops& loops,
         const cpu::SparseLoops& sparse_loops);

  void begin(std::span<const float> vector);
  void gather(std::size_t chunk_index, std::span<const float> chunk);
  // kInvalidArgument names a value that is not finite, or says that steps are missing.
  Result<Selection> finish(std::span<const float> vector);

 private:
  struct Head;  // passed from step to step

  std::uint64_t ties_end(Kth kth) const;

  ChunkLayout layout_;
  SelectOptions options_;
  SamplePlan plan_;
  const cpu::Loops& loops_;
  const cpu::SparseLoops& sparse_loops_;
  Head* head_;
  MutableByteSpan bins_;
  std::span<GatheredPiece> pieces_;
  std::span<std::uint32_t> indices_;
  std::span<float> values_;
  std::span<float> sample_;  // lies where values are gathered later
};

}  // namespace fluvial::kernels

// topk: the values of the whole vector that are greatest in magnitude. Layout of a chunk: an 8-byte header, the values
// (fp32), the indices within the chunk (sparse_indices.h). Internal; dgc sends its vector the same way.
#pragma once

#include "kernels/codecs/sparse.h"
#include "kernels/codecs/topk_select.h"

namespace fluvial::kernels {

class TopkCodec : public SparseCodec {
 public:
  using SparseCodec::SparseCodec;

  std::size_t encoded_bytes_max(std::size_t value_count) const override;
  std::size_t workspace_bytes(const VectorSchema& schema) const override;
  std::size_t state_bytes(const VectorSchema&) const override { return 0; }

  Status survey(const VectorSchema& schema, std::span<const float> vector, const StreamKey& key,
                MutableByteSpan workspace) const override;
  Status survey_chunk(const VectorSchema& schema, const StreamKey& key, std::size_t chunk_index,
                      std::span<const float> chunk, MutableByteSpan workspace) const override;
  Result<EncodePlan> prepare(const VectorSchema& schema, std::span<const float> vector, const StreamKey& key,
                             const PassInput& input, MutableByteSpan state, MutableByteSpan workspace) const override;
  Result<std::size_t> encode_chunk(const EncodePlan& plan, std::size_t chunk_index, std::span<const float> chunk,
                                   MutableByteSpan out) const override;
  Result<std::size_t> encode_residual_chunk(const EncodePlan& plan, std::size_t chunk_index,
                                            std::span<const float> chunk, MutableByteSpan out,
                                            std::span<float> residual) const override;

 protected:
  // The part of the values that is sent in a round.
  virtual double ratio(std::uint64_t round) const;
  virtual std::string_view name() const { return "topk"; }
  Result<SparseEntries> parse(ByteSpan bytes, std::size_t value_count) const override;

 private:
  SelectOptions options(std::uint64_t round, std::uint64_t value_count) const;
};

}  // namespace fluvial::kernels

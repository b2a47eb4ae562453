// A codec that sends some coordinates and leaves the others at zero: the passes over the entries of a chunk, once for
// all of them. A format derives from it and says how a chunk is laid out, and where the indices come from. Internal.
#pragma once

#include "kernels/codecs/common.h"
#include "kernels/codecs/strata.h"
#include "kernels/cpu/sparse_loops.h"
#include "kernels/sparse_indices.h"

namespace fluvial::kernels {

// The parts of a checked chunk. Reading the indices advances the reader, so each pass takes a copy.
struct SparseEntries {
  std::size_t count = 0;
  ByteSpan values;      // fp32
  bool listed = true;   // the indices stand in the chunk; otherwise they are drawn
  IndexReader indices;  // when listed
  Strata strata;        // when drawn

  void read_indices(std::span<std::uint32_t> out) { listed ? indices.read(out) : strata.read(out); }
};

class SparseCodec : public Codec {
 public:
  SparseCodec(const CodecSpec& spec, cpu::Target target)
      : spec_(spec), loops_(cpu::loops(target)), sparse_loops_(cpu::sparse_loops(target)) {}

  const CodecSpec& spec() const final { return spec_; }
  bool lossless() const final { return false; }
  std::uint32_t passes() const final { return 1; }

  Status decode_chunk(ByteSpan bytes, std::span<float> out) const final;
  Status decode_accumulate_chunk(ByteSpan bytes, std::uint32_t weight, int scale_bits,
                                 std::span<std::int64_t> sum) const final;
  Result<ScreenReport> screen_chunk(ByteSpan bytes, std::size_t value_count, std::uint64_t first_value) const final;
  Status decode_add_chunk(ByteSpan bytes, float weight, std::span<float> sum) const final;
  Status residual_chunk(std::span<const float> values, ByteSpan bytes, std::span<float> out) const override;

 protected:
  // Everything about the format but whether the values are finite.
  virtual Result<SparseEntries> parse(ByteSpan bytes, std::size_t value_count) const = 0;

  // Turns the values at a chunk's coordinates into zeros.
  Status clear_sent(ByteSpan bytes, std::span<float> values) const;

  const cpu::Loops& loops() const { return loops_; }
  const cpu::SparseLoops& sparse_loops() const { return sparse_loops_; }

 private:
  CodecSpec spec_;
  const cpu::Loops& loops_;
  const cpu::SparseLoops& sparse_loops_;
};

// kInvalidArgument that names the first of these values that is not finite; `first_value` is the first's coordinate.
Error not_encodable(std::span<const float> values, std::uint64_t first_value);

}  // namespace fluvial::kernels

// A codec that has a value for every coordinate: the passes over decoded pieces, once for all of them. A format derives
// from it and says how a chunk is laid out and how a piece of it decodes.
#pragma once

#include "kernels/codecs/common.h"

namespace fluvial::kernels {

class DenseCodec : public Codec {
 public:
  DenseCodec(const CodecSpec& spec, const cpu::Loops& loops) : spec_(spec), loops_(loops) {}

  const CodecSpec& spec() const final { return spec_; }
  std::uint32_t passes() const final { return 1; }
  std::size_t workspace_bytes(const VectorSchema&) const final { return 0; }
  std::size_t state_bytes(const VectorSchema&) const final { return 0; }

  Result<std::size_t> encode_chunk(const EncodePlan& plan, std::size_t chunk_index, std::span<const float> chunk,
                                   MutableByteSpan out) const final;
  Status decode_chunk(ByteSpan bytes, std::span<float> out) const final;
  Status decode_accumulate_chunk(ByteSpan bytes, std::uint32_t weight, int scale_bits,
                                 std::span<std::int64_t> sum) const final;
  Result<ScreenReport> screen_chunk(ByteSpan bytes, std::size_t value_count, std::uint64_t first_value) const final;
  Status residual_chunk(std::span<const float> values, ByteSpan bytes, std::span<float> out) const final;
  Result<std::size_t> encode_residual_chunk(const EncodePlan& plan, std::size_t chunk_index,
                                            std::span<const float> chunk, MutableByteSpan out,
                                            std::span<float> residual) const final;
  Status decode_add_chunk(ByteSpan bytes, float weight, std::span<float> sum) const final;

 protected:
  // Encodes a whole chunk whose arguments were checked; `first_value` is its first coordinate. `residual`, unless it is
  // empty, gets what that leaves: it has the chunk's length and may be the chunk.
  virtual Result<std::size_t> encode(std::span<const float> chunk, std::uint64_t first_value, const StreamKey& key,
                                     std::byte* out, std::span<float> residual) const = 0;
  // Everything about the format but the values themselves.
  virtual Status check_format(ByteSpan bytes, std::size_t value_count) const = 0;
  // Decodes values first to first + out.size() - 1 of a chunk of value_count that check_format accepted.
  virtual void decode_piece(ByteSpan bytes, std::size_t value_count, std::size_t first, std::span<float> out) const = 0;

  // Each of the following has a default through decode_piece, which is slower and always right. A piece is the `length`
  // values from `first` on of a chunk that check_format accepted; spans are of the whole chunk.

  // out = values - decoded; out may be values.data().
  virtual void residual_piece(ByteSpan bytes, std::size_t first, std::span<const float> values, std::size_t length,
                              float* out) const;
  // sum += weight * decoded, both rounded to fp32.
  virtual void add_piece(ByteSpan bytes, std::size_t first, float weight, std::size_t length,
                         std::span<float> sum) const;
  // Adds decoded * factor, rounded, if it can tell that each such term is below 2^51 in magnitude; otherwise returns
  // false and changes no sum.
  virtual bool accumulate_small_piece(ByteSpan bytes, std::size_t first, double factor, std::size_t length,
                                      std::span<std::int64_t> sum) const;

  const cpu::Loops& loops() const { return loops_; }
  // The residual from a chunk's bytes, for an encode() that does not have it on the way.
  void residual_of(std::span<const float> values, ByteSpan bytes, std::span<float> out) const;

 private:
  bool accumulate_piece(ByteSpan bytes, std::size_t first, double factor, std::size_t length,
                        std::span<std::int64_t> sum) const;
  void take_back(ByteSpan bytes, double factor, std::size_t end, std::span<std::int64_t> sum) const;

  CodecSpec spec_;
  const cpu::Loops& loops_;
};

}  // namespace fluvial::kernels

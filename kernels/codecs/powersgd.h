// PowerSGD (Vogels, Karimireddy, Jaggi, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed
// Optimization", NeurIPS 2019, algorithms 1 and 2): each matrix M of the model travels as two thin factors, whose sums
// over sites are the factors' sums, so that trees, masks and int64 sums work as for fp32.
//
//   pass 0    every site sends P_i = M_i Q, with the same Q at all sites (the warm start); down comes the mean P
//   pass 1    every site makes the columns of P orthonormal and sends Q_i = M_i^T P; down comes the mean Q
//   result    M^ = P Q^T, the mean of the sites' M_i projected on the columns of P; and Q is the next warm start
//
// Matrices are the schema's tensors: two dimensions as they are, more as first x rest, cut where it pays
// (powersgd_shapes.h). All other values travel as they are, in pass 1: so one pass alone decides what a contribution
// adds, and a site that drops out between the passes has merely helped to choose a basis. Without tensors in the schema
// nothing is cut. Rank: 1 to 64; a matrix of no more rows or columns than that travels as it is.
//
// The warm start of the first round is drawn from the counter-based generator for the run, alike at all sites. It is
// never drawn again, with one exception: a column of the mean Q that is zero (no site had anything there: a zero
// matrix, or one of lower rank) would stay zero for good, and so takes the values that it was first drawn with. Each
// column of a warm start is scaled by a power of two to a 2-norm in [0.5, 1): P then has the magnitude of M whatever
// that is, which the fixed-point sum needs, and nothing else changes.
//
// Orthonormal: modified Gram-Schmidt in fp64, from the fp32 mean, rounded to fp32. A column of which no more than 1e-8
// of its norm is left becomes zero (it lies in those before, as far as fp32 can tell), and so does its column of Q.
//
// Error feedback: e = M - P Q_i^T with the site's own Q_i, each operation rounded to fp32, rather than the mean Q as
// in the authors' implementation. So each site's part of the sum plus its residual is what it had, whichever other
// sites counted, and without the mean. Both choices have the same sum over sites when all count.
//
// Exact: a mean matrix of a rank up to r comes back after one round, from any warm start, to about 1e-6 of its norm
// (more as far as columns of P were nearly dependent). NaN and infinity are refused in pass 0 and name their
// coordinate; so are values so large that a factor leaves fp32. Values beyond 2^120 may leave an infinite residual,
// which the next round's pass 0 refuses.
//
// State: 32 bytes, then Q of each matrix (a column after the other) in fp32, little-endian.
//   u32 version 1, u32 rank, u64 run, u64 the round whose mean Q it is + 1 (0: as drawn), u64 fingerprint of the shapes
// All zero: a state before its first round. A site that is new takes part with a zero residual and the warm start of
// the others: settle() of the last round's mean, into a zero state. A run that goes on from another begins with that
// one's factors, which are settled already, under its own name and as those of round 0. prepare() refuses the state of
// another run, rank or schema and one that is not finite; it cannot tell one that is some rounds old, which is for the
// caller to compare.
//
// Determinism: the same bits on every CPU target, however the chunks are cut and the parts are shared among threads.
// Thread safe: immutable. Spans of factors live in the caller's workspace and state.
#pragma once

#include <memory>

#include "kernels/codec.h"
#include "kernels/codecs/powersgd_shapes.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/lowrank_loops.h"

namespace fluvial::kernels {

class PowerSgdCodec final : public Codec {
 public:
  PowerSgdCodec(const CodecSpec& spec, cpu::Target target);

  const CodecSpec& spec() const override { return spec_; }
  bool lossless() const override { return false; }
  std::uint32_t passes() const override { return 2; }
  ChunkLayout pass_layout(const VectorSchema& schema, std::uint32_t pass) const override;
  std::size_t encoded_bytes_max(std::size_t value_count) const override;
  std::size_t workspace_bytes(const VectorSchema& schema) const override;
  std::size_t state_bytes(const VectorSchema& schema) const override;

  Result<EncodePlan> prepare(const VectorSchema& schema, std::span<const float> vector, const StreamKey& key,
                             const PassInput& input, MutableByteSpan state, MutableByteSpan workspace) const override;
  Status prepare_part(const EncodePlan& plan, std::size_t part) const override;
  Status leave_chunk(const EncodePlan& plan, std::size_t chunk_index, std::span<const float> values,
                     std::span<float> out) const override;
  Result<ExpandPlan> prepare_expand(const VectorSchema& schema, std::span<const std::span<const float>> means,
                                    MutableByteSpan workspace) const override;
  Status expand_chunk(const ExpandPlan& plan, std::size_t chunk_index, std::span<float> out) const override;
  Status settle(const VectorSchema& schema, const StreamKey& key, std::span<const float> mean,
                MutableByteSpan state) const override;
  Status continue_state(const VectorSchema& schema, const StreamKey& key, ByteSpan last,
                        MutableByteSpan state) const override;

  // The factors travel as plain fp32, and nothing is left out.
  Result<std::size_t> encode_chunk(const EncodePlan& plan, std::size_t chunk_index, std::span<const float> chunk,
                                   MutableByteSpan out) const override;
  Status decode_chunk(ByteSpan bytes, std::span<float> out) const override;
  Status decode_accumulate_chunk(ByteSpan bytes, std::uint32_t weight, int scale_bits,
                                 std::span<std::int64_t> sum) const override;
  Result<ScreenReport> screen_chunk(ByteSpan bytes, std::size_t value_count, std::uint64_t first_value) const override;
  Status residual_chunk(std::span<const float> values, ByteSpan bytes, std::span<float> out) const override;
  Status decode_add_chunk(ByteSpan bytes, float weight, std::span<float> sum) const override;

 private:
  // Orthonormal P of each matrix, from the mean of pass 0.
  Status make_basis(const VectorSchema& schema, std::span<const float> mean, std::span<double> scratch,
                    std::span<float> basis) const;
  Status multiply(const EncodePlan& plan, const powersgd::Part& part) const;
  Status multiply_back(const EncodePlan& plan, const powersgd::Part& part) const;
  // Finds out whether non-finite values in a part of pass 0 or 1 came from the vector, or were too large.
  Status check_products(const EncodePlan& plan, const powersgd::Segment& segment,
                        std::span<const float> products) const;
  Status check_state(const VectorSchema& schema, const StreamKey& key, ByteSpan state) const;
  Status write_state(const VectorSchema& schema, const StreamKey& key, std::span<const float> mean,
                     MutableByteSpan state) const;

  CodecSpec spec_;
  const cpu::Loops& loops_;
  const cpu::LowrankLoops& lowrank_;
  std::unique_ptr<Codec> fp32_;
};

}  // namespace fluvial::kernels

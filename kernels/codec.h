// Codecs: how an update's values become bytes. Every encoded chunk is self-contained (docs/formats/codecs.md).
//
// Sender:    fold(...) makes the vector from the update and the residual;  plan = prepare(schema, vector, ...);  then
//            encode_chunk(plan, i, ...) for each chunk, in any order, also while earlier chunks are being sent;  then
//            residual_chunk(...) for what the codec left out (or both at once: encode_residual_chunk), and
//            settle_chunk(...) once the contribution counted.
// Receiver:  screen_chunk(...) once, when the chunk arrives: nothing of an update is summed before all of its chunks
//            passed;  then decode_accumulate_chunk(...) into the int64 sum (fixed.h), or decode_chunk(...) to look at
//            it, or decode_add_chunk(...) into an fp32 sum.
//
// A codec with several passes (PowerSGD) does this once for each pass within a round. What travels in a pass, and what
// its chunks hold, is plan.values in pass_layout(...); between two passes the mean of the sums comes back down:
//
// Site:      plan = prepare(schema, vector, key, {pass, mean of the pass before}, ...);  prepare_part(plan, i) for each
//            of plan.parts, in any order or side by side;  then encode_chunk(...). After the last pass, once the
//            contribution counted, leave_chunk(...) gives the residual, by chunks of the model.
// Receiver:  as above in each pass;  then, at the root, plan = prepare_expand(schema, the means of all passes, ...) and
//            expand_chunk(...) turn the means into the mean update, by chunks of the model.
// Everybody: settle(schema, key, mean of the last pass, state), counted or not: the state then depends on nothing else,
//            so a site that is new, or missed rounds, settles the last mean that it is sent into a zero-filled state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "kernels/chunks.h"
#include "kernels/cpu/target.h"

namespace fluvial::kernels {

enum class CodecKind : std::uint8_t {
  kFp32,
  kFp16,
  kBf16,
  kInt8,
  kInt4,
  kSign,
  kQsgd,
  kTernGrad,
  kTopk,
  kRandk,
  kDgc,
  kPowerSgd,
  kRing,
  kOnebitAdam,
};

// What a plan asks for. Only the fields of its kind mean anything; the others keep their defaults.
struct CodecSpec {
  CodecKind kind = CodecKind::kFp32;
  std::uint32_t block_values = 256;  // int8, int4 (even), sign and its kin: values that share a scale, 128 to 2048
  bool stochastic = true;           // int8, int4, ring: stochastic rounding (unbiased); otherwise nearest, half to even
  double ratio = 0.01;              // topk, randk, dgc: the part of the values that is sent, in (0, 1]
  bool sampled = false;             // topk: a threshold from a sample, k within a stated bound; otherwise exactly k
  bool unbiased = false;            // randk: scaled by d / k, no residual; otherwise as they are, with residual
  bool vote = false;                // sign: +1 and -1 for a majority vote; otherwise scaled by the block's mean
  std::uint32_t levels = 127;       // qsgd: s, 1 to 127
  bool elias = false;               // qsgd: Elias-gamma codes; otherwise a fixed number of bits
  double momentum = 0.9;            // dgc: in [0, 1)
  double clip = 0;                  // dgc: greatest 2-norm of a gradient; terngrad: in standard deviations; 0: none
  std::uint32_t warmup_rounds = 0;  // dgc: rounds for each step of the warm-up schedule
  std::uint32_t rank = 2;           // powersgd: 1 to 64
  std::uint32_t bits = 8;           // ring: of a code, 2 to 24
  std::uint32_t freeze_rounds = 100;  // onebit_adam: rounds in fp32 before the variance stays as it is
  double beta1 = 0.9;                 // onebit_adam: the momentum's, in [0, 1)
  double max = 0;                     // ring: values up to it are not clipped; must be given
  int zstd_level = 0;                 // any: what was encoded, compressed, 1 to 19; 0: not
  bool operator==(const CodecSpec&) const = default;
};

// "fp32", "int8", "int8:block=512,rounding=nearest", "topk:ratio=0.05". kInvalidArgument says what was expected.
Result<CodecSpec> parse_codec(std::string_view text);
// The canonical text: parse_codec gives the same spec back. Every option of the kind is written out.
std::string to_string(const CodecSpec& spec);

// Names the random stream of one contribution. The same key, vector and spec give the same bytes, on every machine.
struct StreamKey {
  std::uint64_t run = 0;
  std::uint64_t round = 0;
  std::uint32_t site = 0;
  bool operator==(const StreamKey&) const = default;
};

// Some codecs (PowerSGD) send a first part up the tree, receive its mean, and send a second part.
struct PassInput {
  std::uint32_t pass = 0;          // 0 to passes() - 1
  std::span<const float> reduced;  // the mean that came back down from the previous pass; empty in pass 0
  bool surveyed = false;           // survey() and survey_chunk() were called for all of this vector
};

// Entries first to first + count - 1 of what was gathered of kPieceValues values.
struct GatheredPiece {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

// What prepare() found out about the whole vector: valid for one vector and one pass, as long as both the vector and
// the workspace stay as they are.
struct EncodePlan {
  ChunkLayout layout;  // of `values`: pass_layout()
  StreamKey key;
  std::uint32_t pass = 0;
  std::span<const float> values;     // what this pass sends: the vector itself, or something shorter in the workspace
  std::uint32_t threshold_bits = 0;  // topk: magnitudes (as bits) above this are sent ...
  std::uint64_t ties_end = 0;        // ... and those equal to it at coordinates below this
  // topk: where what may be sent was gathered, so that chunks need not be looked at again. Each
  // chunk has its pieces, in order, and a piece its entries; empty: nothing was kept.
  std::span<const GatheredPiece> pieces;
  std::span<const std::uint32_t> gathered_indices;  // within the chunk
  std::span<const float> gathered_values;

  // Codecs with several passes. Views as well, of the schema, the vector, the state and the workspace.
  std::size_t parts = 0;  // how often prepare_part() is called before `values` are complete
  VectorSchema schema;
  std::span<const float> vector;
  std::span<const float> factors;  // powersgd: what the matrices are multiplied by
  MutableByteSpan workspace;
};

// What prepare_expand() found out from the means of all passes, with views as in EncodePlan.
struct ExpandPlan {
  VectorSchema schema;
  std::span<const float> factors;  // powersgd: the orthonormal P
  std::span<const float> values;   // the mean of the last pass
};

struct ScreenReport {
  float max_abs = 0;
  double norm_squared = 0;  // in fp64, summed in a fixed order (vector.h): the same on every machine
};

// Immutable and thread safe. Spans live within the call. `value_count` is always the number of values of the chunk as
// the layout gives it, never a number from a peer; lengths are checked against it before anything is read.
class Codec {
 public:
  virtual ~Codec() = default;

  virtual const CodecSpec& spec() const = 0;
  // decode(encode(x)) == x for every x: no residual is left.
  virtual bool lossless() const = 0;
  virtual std::uint32_t passes() const = 0;
  // What travels and is summed in a pass: for most codecs the vector itself.
  virtual ChunkLayout pass_layout(const VectorSchema& schema, std::uint32_t pass) const;
  // The most bytes an encoded chunk of so many values takes: the size of encode_chunk's `out`, and a receiver's bound.
  virtual std::size_t encoded_bytes_max(std::size_t value_count) const = 0;
  // Scratch memory for prepare(), aligned to 8 bytes; holds nothing between calls.
  virtual std::size_t workspace_bytes(const VectorSchema& schema) const = 0;
  // What the codec keeps between rounds, beside the residual (momentum, a warm start); aligned to 8 bytes, zero-filled
  // before the first round. The caller owns it and makes it durable with the residual. fold() and prepare() advance it
  // by one round (where means come back down, settle() does): a caller whose update is refused goes back to the copy
  // from before.
  virtual std::size_t state_bytes(const VectorSchema& schema) const = 0;

  // Whether rounds hand something down to all sites, beside the model, that the next one begins with (powersgd: its
  // state; onebit_adam: the momentum); and how many bytes round `round` hands down.
  virtual bool hands_down() const;
  virtual std::size_t handed_bytes(const VectorSchema& schema, std::uint64_t round) const;
  // Before fold(), for each chunk in any order and side by side: what a site makes of that (onebit_adam). The chunk of
  // the residual is then without what was lent with it, and with what is lent now, of which `state` is the record.
  // `handed`, as it came, is empty where nothing was handed down. Of round 0, an update that no round will take,
  // nothing is lent. kInvalidArgument when that is not what the round begins with; kDataLoss when it is no such thing.
  virtual Status lend_chunk(const VectorSchema& schema, const StreamKey& key, std::size_t chunk_index, ByteSpan handed,
                            std::span<float> residual, MutableByteSpan state) const;

  // The vector of this round: update + residual, rounded to fp32, and + 0, which turns -0 into +0. A codec with
  // momentum of its own (dgc) adds that instead. `residual` may be empty (all zero); `out` may be either of the others.
  virtual Status fold(const VectorSchema& schema, std::span<const float> update, std::span<const float> residual,
                      MutableByteSpan state, std::span<float> out) const;

  // Looks at the whole vector, which must be finite (vector.h screens); most codecs look at chunks alone, and send the
  // vector itself. kInvalidArgument when the pass, the vector's
  // length, the state or the workspace does not fit.
  virtual Result<EncodePlan> prepare(const VectorSchema& schema, std::span<const float> vector, const StreamKey& key,
                                     const PassInput& input, MutableByteSpan state, MutableByteSpan workspace) const;

  // For callers with threads: prepare()'s pass over the vector in parts. survey(), then survey_chunk() for every chunk
  // in any order and side by side, then prepare() with input.surveyed, to the same bytes as without; all with the same
  // workspace. Codecs whose prepare() is quick do nothing here.
  virtual Status survey(const VectorSchema& schema, std::span<const float> vector, const StreamKey& key,
                        MutableByteSpan workspace) const;
  virtual Status survey_chunk(const VectorSchema& schema, const StreamKey& key, std::size_t chunk_index,
                              std::span<const float> chunk, MutableByteSpan workspace) const;

  // Computes part `part` of plan.values: parts touch nothing in common, so threads may share them. prepare() of most
  // codecs has done everything and leaves none. kInvalidArgument names the coordinate when a value is NaN or infinite.
  virtual Status prepare_part(const EncodePlan& plan, std::size_t part) const;

  // Encodes chunk `chunk_index` of plan.values, which `chunk` is; returns the bytes used of `out`. kInvalidArgument
  // names the coordinate of a value that is not finite, for every codec that looks (fp32 does not).
  virtual Result<std::size_t> encode_chunk(const EncodePlan& plan, std::size_t chunk_index,
                                           std::span<const float> chunk, MutableByteSpan out) const = 0;

  // kDataLoss when the bytes are no encoded chunk of out.size() values; `out` is then unspecified. Does not look for
  // NaN.
  virtual Status decode_chunk(ByteSpan bytes, std::span<float> out) const = 0;

  // Adds weight * value * 2^scale_bits, rounded once half to even, to each sum (fixed.h). The chunk was screened and
  // its max_abs is within the bound that the scale was made for. kDataLoss, and no sum changed, when it was not.
  virtual Status decode_accumulate_chunk(ByteSpan bytes, std::uint32_t weight, int scale_bits,
                                         std::span<std::int64_t> sum) const = 0;

  // Checks everything a hostile peer could get wrong: lengths, counts, index order and range, scales, and that every
  // decoded value is finite. kDataLoss names the coordinate; `first_value` is the chunk's first coordinate, for that.
  virtual Result<ScreenReport> screen_chunk(ByteSpan bytes, std::size_t value_count,
                                            std::uint64_t first_value) const = 0;

  // Error feedback: out = values - decode(bytes), each rounded once to fp32; `out` may be `values`. For topk, decoded +
  // residual == values bit for bit (a zero's sign aside). Zeros for an unbiased randk, which leaves nothing out.
  virtual Status residual_chunk(std::span<const float> values, ByteSpan bytes, std::span<float> out) const = 0;

  // encode_chunk and residual_chunk in one pass over the values, to the same bits. `residual` may be `chunk`. On an
  // error it holds anything.
  virtual Result<std::size_t> encode_residual_chunk(const EncodePlan& plan, std::size_t chunk_index,
                                                    std::span<const float> chunk, MutableByteSpan out,
                                                    std::span<float> residual) const;

  // sum = fp32(sum + fp32(weight * value)) for each value, in fp32: for sums inside a machine, where order is fixed.
  // kDataLoss when the bytes are no encoded chunk; the sum is then unspecified.
  virtual Status decode_add_chunk(ByteSpan bytes, float weight, std::span<float> sum) const = 0;

  // What the codec's state becomes when an encoded chunk counted (dgc forgets the momentum of what was sent). `bytes`
  // are what encode_chunk gave for the chunk.
  virtual Status settle_chunk(const VectorSchema& schema, std::size_t chunk_index, ByteSpan bytes,
                              MutableByteSpan state) const;

  // Codecs with several passes: error feedback by chunks of the model. `plan` is that of the last pass, all of its
  // parts done; `values` are chunk `chunk_index` of the vector; `out` may be `values`. After a restart the plan is had
  // again from the vector and the mean of the pass before. kInvalidArgument for codecs with one pass: residual_chunk().
  virtual Status leave_chunk(const EncodePlan& plan, std::size_t chunk_index, std::span<const float> values,
                             std::span<float> out) const;

  // The means of all passes, in order, to the mean update: chunk `chunk_index` of the model. With one pass, it is the
  // mean. The workspace is of workspace_bytes(), and stays as it is while the plan is used. kInvalidArgument when
  // lengths do not fit or a mean is not finite.
  virtual Result<ExpandPlan> prepare_expand(const VectorSchema& schema, std::span<const std::span<const float>> means,
                                            MutableByteSpan workspace) const;
  virtual Status expand_chunk(const ExpandPlan& plan, std::size_t chunk_index, std::span<float> out) const;

  // The state after a round, from the mean of its last pass: the same at everybody who was sent that mean. `key` has
  // the run and the round. Nothing for codecs whose state does not depend on others.
  virtual Status settle(const VectorSchema& schema, const StreamKey& key, std::span<const float> mean,
                        MutableByteSpan state) const;
  // What the first round of a run begins with that goes on from another one of the same codec and schema, of which
  // `last` is what its last round handed down; `state` is zero-filled, of handed_bytes(), and `key` has the new run.
  // Nothing for codecs whose rounds hand nothing down.
  virtual Status continue_state(const VectorSchema& schema, const StreamKey& key, ByteSpan last,
                                MutableByteSpan state) const;
};

// The names of all codecs, as text for people: "fp32, fp16, ...".
std::string codec_names();
// Each of them as a text that parses: with the options that have no default ("ring:max=0.05").
std::vector<std::string> codec_examples();

// Whether this build has the zstd stage (libzstd).
bool zstd_available();

// kInvalidArgument when the spec is out of range; kFailedPrecondition when it asks for zstd and this build has none.
// `target` is for tests: all targets give the same bits.
Result<std::unique_ptr<Codec>> make_codec(const CodecSpec& spec, cpu::Target target = cpu::best_target());

}  // namespace fluvial::kernels

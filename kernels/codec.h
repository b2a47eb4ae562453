// Codecs: how an update's values become bytes. Every encoded chunk is self-contained (docs/formats/codecs.md).
//
// Sender:    plan = prepare(schema, vector, ...);  then encode_chunk(plan, i, ...) for each chunk, in any order, also
//            while earlier chunks are being sent;  then residual_chunk(...) for what the codec left out.
// Receiver:  screen_chunk(...) once, when the chunk arrives: nothing of an update is summed before all of its chunks
//            passed;  then decode_accumulate_chunk(...) into the int64 sum (fixed.h), or decode_chunk(...) to look at
//            it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "kernels/chunks.h"
#include "kernels/cpu/target.h"

namespace fluvial::kernels {

enum class CodecKind : std::uint8_t { kFp32, kBf16, kInt8, kTopk };

// What a plan asks for. Only the fields of its kind mean anything; the others keep their defaults.
struct CodecSpec {
  CodecKind kind = CodecKind::kFp32;
  std::uint32_t block_values = 256;  // int8: values that share a scale, 128 to 2048
  bool stochastic = true;            // int8: stochastic rounding (unbiased); otherwise nearest, half to even
  double ratio = 0.01;               // topk: the part of the values that is sent, in (0, 1]
  bool operator==(const CodecSpec&) const = default;
};

// "fp32", "bf16", "int8", "int8:block=512,rounding=nearest", "topk:ratio=0.05". kInvalidArgument says what was
// expected.
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

// Some codecs (PowerSGD) send a first part up the tree, receive its reduction, and send a second part.
struct PassInput {
  std::uint32_t pass = 0;  // 0 to passes() - 1
  ByteSpan reduced;        // what came back down from the previous pass; empty in pass 0
};

// What prepare() found out about the whole vector. A small value, valid for one vector and one pass.
struct EncodePlan {
  ChunkLayout layout;
  StreamKey key;
  std::uint32_t pass = 0;
  std::uint32_t threshold_bits = 0;  // topk: magnitudes (as bits) above this are sent ...
  std::uint64_t ties_end = 0;        // ... and those equal to it at coordinates below this
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
  // The most bytes an encoded chunk of so many values takes: the size of encode_chunk's `out`, and a receiver's bound.
  virtual std::size_t encoded_bytes_max(std::size_t value_count) const = 0;
  // Scratch memory for prepare(), aligned to 8 bytes; holds nothing between calls.
  virtual std::size_t workspace_bytes(const VectorSchema& schema) const = 0;
  // What the codec keeps between rounds, beside the residual; zero-filled before the first round. The caller owns it
  // and makes it durable with the residual.
  virtual std::size_t state_bytes(const VectorSchema& schema) const = 0;

  // Looks at the whole vector, which must be finite (vector.h screens). kInvalidArgument when the pass, the vector's
  // length, the state or the workspace does not fit.
  virtual Result<EncodePlan> prepare(const VectorSchema& schema, std::span<const float> vector, const StreamKey& key,
                                     const PassInput& input, MutableByteSpan state,
                                     MutableByteSpan workspace) const = 0;

  // Encodes chunk `chunk_index` of the vector that `plan` was made from; returns the bytes used of `out`.
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
  // residual == values bit for bit (a zero's sign aside).
  virtual Status residual_chunk(std::span<const float> values, ByteSpan bytes, std::span<float> out) const = 0;
};

// kInvalidArgument when the spec is out of range. `target` is for tests: all targets give the same bits.
Result<std::unique_ptr<Codec>> make_codec(const CodecSpec& spec, cpu::Target target = cpu::best_target());

}  // namespace fluvial::kernels

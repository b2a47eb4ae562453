// Codecs on a device: codec.h's verbs on device memory, everything in a stream. The encoded bytes, decoded values,
// residuals and sums are the CPU's, bit for bit; so is every ScreenReport::max_abs. norm_squared is added in another
// order than the CPU's (device_vector.h): the same on every GPU and in every run.
//
//   DeviceBuffer workspace = DeviceBuffer::make(device, codec->workspace_bytes(schema));
//   codec->fold(schema, update, residual, state.span(), workspace.span(), vector, stream);
//   plan = codec->prepare(schema, vector, key, state.span(), workspace.span(), stream);
//   codec->encode_chunk(plan, i, chunk, out, outcome, stream);     ...   stream.synchronize();
//   Result<std::size_t> bytes = codec->encoded_bytes(*outcome);
//
// Results that only the device knows (an encoded size, a value that is not finite) arrive in a ChunkOutcome in pinned
// memory, and are valid once the stream was synchronised. A Status that returns at once is about the arguments.
#pragma once

#include <memory>

#include "kernels/codec.h"
#include "kernels/device.h"

namespace fluvial::kernels {

// Belongs to one call until that is done. In pinned memory (PinnedBuffer::as<ChunkOutcome>()).
struct ChunkOutcome {
  using Coordinate = unsigned long long;  // what devices have atomic operations for
  static constexpr Coordinate kNone = ~Coordinate{0};
  std::uint64_t bytes = 0;                          // encode: the encoded size
  Coordinate not_finite_at = kNone;                 // the first coordinate of the whole vector that is NaN or infinite
  static constexpr std::uint32_t kMalformed = 1;    // the bytes are no encoded chunk
  static constexpr std::uint32_t kBeyondScale = 2;  // a value times its weight is beyond 2^62 at the scale
  std::uint32_t malformed = 0;                      // screen, accumulate: one of these, or 0
  std::uint32_t max_bits = 0;                       // screen: the greatest magnitude, as bits
  double norm_squared = 0;                          // screen
};

// As EncodePlan; the part that only the device knows is in the workspace. The calls with one plan go into the stream
// of its prepare().
struct DevicePlan {
  ChunkLayout layout;
  StreamKey key;
  DeviceSpan<const float> values;
  DeviceSpan<std::byte> workspace;
  EncodePlan host;  // on the CPU: all of it
};

// Immutable and thread safe. Encoded bytes begin at a multiple of 16 (checked), vectors anywhere (a multiple of 16 is
// fastest).
class DeviceCodec {
 public:
  virtual ~DeviceCodec() = default;
  virtual const CodecSpec& spec() const = 0;
  virtual std::size_t encoded_bytes_max(std::size_t value_count) const = 0;
  virtual std::size_t workspace_bytes(const VectorSchema& schema) const = 0;

  // Codec's state, on the device: zeros before the first round; durable if the host copies it.
  virtual std::size_t state_bytes(const VectorSchema&) const { return 0; }

  // The vector of a round. `residual` may be empty; `out` may be either of the others. The update is finite
  // (device_screen). kInvalidArgument when lengths do not fit.
  Status fold(const VectorSchema& schema, DeviceSpan<const float> update, DeviceSpan<const float> residual,
              DeviceSpan<std::byte> state, DeviceSpan<std::byte> workspace, DeviceSpan<float> out,
              Stream& stream) const;

  // The vector must be finite: if a codec does not look at every value (topk), the outcome for other values is not
  // stated.
  virtual Result<DevicePlan> prepare(const VectorSchema& schema, DeviceSpan<const float> vector, const StreamKey& key,
                                     DeviceSpan<std::byte> state, DeviceSpan<std::byte> workspace,
                                     Stream& stream) const = 0;
  Status encode_chunk(const DevicePlan& plan, std::size_t chunk_index, DeviceSpan<const float> chunk,
                      DeviceSpan<std::byte> out, ChunkOutcome* outcome, Stream& stream) const;
  // `residual` may be `chunk`.
  Status encode_residual_chunk(const DevicePlan& plan, std::size_t chunk_index, DeviceSpan<const float> chunk,
                               DeviceSpan<std::byte> out, DeviceSpan<float> residual, ChunkOutcome* outcome,
                               Stream& stream) const;
  // After the stream was synchronised: the bytes used of `out`. kInvalidArgument names a coordinate that cannot be
  // encoded; the bytes are then unspecified.
  Result<std::size_t> encoded_bytes(const ChunkOutcome& outcome) const;

  // The verbs below read bytes whose length is encoded_bytes_max(values) or, for codecs of varying size, what
  // encode_chunk said. screen_chunk and decode_accumulate_chunk check everything in them, as the CPU's screen_chunk
  // does. The others take bytes that passed it (here or on the CPU); for other bytes they may give any values, but
  // never touch memory that is not theirs.
  Status screen_chunk(DeviceSpan<const std::byte> bytes, std::size_t value_count, std::uint64_t first_value,
                      DeviceSpan<std::byte> workspace, ChunkOutcome* outcome, Stream& stream) const;
  // kDataLoss when the chunk must not be used.
  Result<ScreenReport> screened(const ChunkOutcome& outcome) const;
  // The workspace of screen_chunk and decode_accumulate_chunk.
  static std::size_t screen_workspace_bytes(std::size_t value_count);

  virtual Status decode_chunk(DeviceSpan<const std::byte> bytes, DeviceSpan<float> out, Stream& stream) const = 0;
  // Screens the chunk, on the device, and adds it if it passed: no sum changes when it did not, nor when a value times
  // its weight is beyond 2^62 at this scale. screened() says which, once the stream was synchronised. Terms as fixed.h
  // has them.
  Status decode_accumulate_chunk(DeviceSpan<const std::byte> bytes, std::uint64_t first_value, std::uint32_t weight,
                                 int scale_bits, DeviceSpan<std::int64_t> sum, DeviceSpan<std::byte> workspace,
                                 ChunkOutcome* outcome, Stream& stream) const;
  virtual Status decode_add_chunk(DeviceSpan<const std::byte> bytes, float weight, DeviceSpan<float> sum,
                                  Stream& stream) const = 0;
  // `out` may be `values`.
  Status residual_chunk(DeviceSpan<const float> values, DeviceSpan<const std::byte> bytes, DeviceSpan<float> out,
                        Stream& stream) const;

  // Updates the state when an encoded chunk counted. `bytes` are encode_chunk's.
  Status settle_chunk(const VectorSchema& schema, std::size_t chunk_index, DeviceSpan<const std::byte> bytes,
                      DeviceSpan<std::byte> state, Stream& stream) const;

 protected:
  // Arguments were checked. The defaults are for codecs without a state.
  virtual Status fold_state(const VectorSchema& schema, DeviceSpan<const float> update,
                            DeviceSpan<const float> residual, DeviceSpan<std::byte> state,
                            DeviceSpan<std::byte> workspace, DeviceSpan<float> out, Stream& stream) const;
  virtual Status settle_state(const ChunkLayout&, std::size_t, DeviceSpan<const std::byte>, DeviceSpan<std::byte>,
                              Stream&) const {
    return {};
  }
  // Arguments were checked, the outcome set to nothing; `residual` is empty when none is wanted.
  virtual Status encode(const DevicePlan& plan, std::size_t chunk_index, DeviceSpan<const float> chunk,
                        DeviceSpan<std::byte> out, DeviceSpan<float> residual, ChunkOutcome* outcome,
                        Stream& stream) const = 0;
  virtual Status screen(DeviceSpan<const std::byte> bytes, std::size_t value_count, std::uint64_t first_value,
                        DeviceSpan<std::byte> workspace, ChunkOutcome* outcome, Stream& stream) const = 0;
  // The chunk was screened in the stream, into `outcome` and with `workspace`.
  virtual Status accumulate(DeviceSpan<const std::byte> bytes, std::uint32_t weight, int scale_bits,
                            DeviceSpan<std::int64_t> sum, DeviceSpan<std::byte> workspace, ChunkOutcome* outcome,
                            Stream& stream) const = 0;
  virtual Status residual(DeviceSpan<const float> values, DeviceSpan<const std::byte> bytes, DeviceSpan<float> out,
                          Stream& stream) const = 0;
};

// kInvalidArgument when the spec is out of range, kUnavailable when the device is not there, kFailedPrecondition when
// it does not have the codec: cuda/README.md lists those that GPUs have; the CPU has all of one pass; powersgd is in
// device_powersgd.h.
Result<std::unique_ptr<DeviceCodec>> make_device_codec(const Device& device, const CodecSpec& spec);

}  // namespace fluvial::kernels

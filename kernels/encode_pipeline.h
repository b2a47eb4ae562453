// Encodes a vector on a device and passes its chunks to the host, in order: while one chunk is encoded, the previous
// one is copied to pinned memory, and the one before that is with the caller. Two slots of each, on any backend (on
// the CPU the three steps simply follow each other).
#pragma once

#include <array>
#include <functional>

#include "kernels/device_codec.h"

namespace fluvial::kernels {

// One at a time; owns two encoded chunks on the device, two in pinned memory, and two streams.
class EncodePipeline {
 public:
  // For chunks of up to chunk_values. `codec` is of that device and outlives the pipeline.
  static Result<EncodePipeline> make(const Device& device, const DeviceCodec& codec, std::size_t chunk_values);

  // The stream for the work before encoding, including prepare().
  Stream& stream() { return encode_stream_; }

  // `leave` gets every chunk's bytes, in order; they hold during the call. Its first error ends the run, as does a
  // chunk that cannot be encoded (kInvalidArgument). `residual` is empty or as long as the vector, which it may be.
  using Leave = std::function<Status(std::size_t chunk_index, ByteSpan bytes)>;
  Status run(const DevicePlan& plan, DeviceSpan<float> residual, const Leave& leave);

 private:
  struct Slot {
    DeviceBuffer encoded;
    PinnedBuffer bytes;
    PinnedBuffer outcome;
    Event encoded_event;
    Event copied_event;
    std::size_t size = 0;
  };
  static Result<Slot> make_slot(const Device& device, std::size_t bytes);
  ChunkOutcome* outcome_of(Slot& slot) { return slot.outcome.as<ChunkOutcome>().data(); }
  Status encode(const DevicePlan& plan, DeviceSpan<float> residual, std::size_t chunk_index);
  Status copy(std::size_t chunk_index);
  Status run_all(const DevicePlan& plan, DeviceSpan<float> residual, const Leave& leave);

  const DeviceCodec* codec_ = nullptr;
  Stream encode_stream_;
  Stream copy_stream_;
  std::array<Slot, 2> slots_;
};

}  // namespace fluvial::kernels

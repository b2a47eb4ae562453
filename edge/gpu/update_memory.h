// The memory that an update takes on GPUs. Internal to the room.
//
// On the GPU that makes the update: the update itself (4 bytes a value), two slots, each with a chunk of the base and
// one of the residual (16 bytes a value of a chunk), the codec's workspace (workspace_bytes(): for topk a fraction of
// the update, for the others little or nothing) and two encoded chunks. If workers are on several GPUs, a chunk on each
// of the others (4 bytes a value of it). In pinned host memory: two slots of base, residual and p, and two encoded
// chunks.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/encode_pipeline.h"

namespace fluvial::edge {

// The memory that the codec of a plan needs.
struct EncodeMemory {
  std::unique_ptr<kernels::DeviceCodec> codec;
  kernels::DeviceBuffer workspace;
  std::optional<kernels::EncodePipeline> pipeline;
};

struct UpdateMemory {
  // Serves chunks i, i + 2, ... The host waits for `filled` before it writes base and residual again, and for `left`
  // before it reads p and puts the next chunk into the streams. The streams wait for each other by `filled` and `made`.
  struct Slot {
    kernels::PinnedBuffer base_host, residual_host, p_host;
    kernels::PinnedBuffer update_outcome, outcome;  // of the screen, before and after the residual is added
    kernels::DeviceBuffer base, residual;
    kernels::Event filled, made, left;
  };
  struct Shape {
    std::vector<kernels::Device> devices;  // the first makes the update
    kernels::ChunkLayout layout;
    bool operator==(const Shape&) const = default;
  };

  // kResourceExhausted when a device, or the host, has no room.
  static Result<std::unique_ptr<UpdateMemory>> make(Shape shape);
  std::size_t device_bytes() const;  // without the two encoded chunks
  // Does nothing for the codec it has already. kFailedPrecondition when the device does not have the codec.
  Status prepare_codec(const kernels::CodecSpec& spec);

  Shape shape;
  kernels::Stream in, out;
  std::vector<kernels::Stream> work;  // one for each device
  std::array<Slot, 2> slots;
  kernels::DeviceBuffer p;
  std::vector<kernels::DeviceBuffer> shares;  // one for each device but the first
  kernels::DeviceBuffer screening;
  std::optional<EncodeMemory> encoding;
};

}  // namespace fluvial::edge

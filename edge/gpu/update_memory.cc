#include "edge/gpu/update_memory.h"

#include <algorithm>
#include <utility>

#include "kernels/device_vector.h"

namespace fluvial::edge {
namespace {

using kernels::Device;
using kernels::DeviceBuffer;
using kernels::Event;
using kernels::PinnedBuffer;

std::size_t chunk_values_of(const kernels::ChunkLayout& layout) {
  return static_cast<std::size_t>(std::min(layout.chunk_values, layout.value_count));
}

Result<UpdateMemory::Slot> make_slot(const Device& device, std::size_t chunk_bytes) {
  UpdateMemory::Slot slot;
  FLUVIAL_ASSIGN(slot.base_host, PinnedBuffer::make(device, chunk_bytes));
  FLUVIAL_ASSIGN(slot.residual_host, PinnedBuffer::make(device, chunk_bytes));
  FLUVIAL_ASSIGN(slot.p_host, PinnedBuffer::make(device, chunk_bytes));
  FLUVIAL_ASSIGN(slot.update_outcome, PinnedBuffer::make(device, sizeof(kernels::ChunkOutcome)));
  FLUVIAL_ASSIGN(slot.outcome, PinnedBuffer::make(device, sizeof(kernels::ChunkOutcome)));
  FLUVIAL_ASSIGN(slot.base, DeviceBuffer::make(device, chunk_bytes));
  FLUVIAL_ASSIGN(slot.residual, DeviceBuffer::make(device, chunk_bytes));
  FLUVIAL_ASSIGN(slot.filled, Event::make(device));
  FLUVIAL_ASSIGN(slot.made, Event::make(device));
  FLUVIAL_ASSIGN(slot.left, Event::make(device));
  return slot;
}

}  // namespace

std::size_t UpdateMemory::device_bytes() const {
  std::size_t bytes = p.size() + screening.size();
  for (const Slot& slot : slots) bytes += slot.base.size() + slot.residual.size();
  for (const DeviceBuffer& share : shares) bytes += share.size();
  return bytes + (encoding ? encoding->workspace.size() : 0);
}

Result<std::unique_ptr<UpdateMemory>> UpdateMemory::make(Shape shape) {
  auto memory = std::make_unique<UpdateMemory>();
  const Device& first = shape.devices.front();
  const std::size_t chunk_bytes = chunk_values_of(shape.layout) * sizeof(float);
  FLUVIAL_ASSIGN(memory->p,
                 DeviceBuffer::make(first, static_cast<std::size_t>(shape.layout.value_count) * sizeof(float)));
  for (Slot& slot : memory->slots) {
    FLUVIAL_ASSIGN(slot, make_slot(first, chunk_bytes));
  }
  const std::size_t screening = kernels::device_screen_workspace_bytes(chunk_values_of(shape.layout));
  FLUVIAL_ASSIGN(memory->screening, DeviceBuffer::make(first, screening));
  FLUVIAL_ASSIGN(memory->in, kernels::Stream::make(first));
  FLUVIAL_ASSIGN(memory->out, kernels::Stream::make(first));
  for (const Device& device : shape.devices) {
    FLUVIAL_ASSIGN(kernels::Stream stream, kernels::Stream::make(device));
    memory->work.push_back(std::move(stream));
    if (device == first) continue;
    FLUVIAL_ASSIGN(DeviceBuffer share, DeviceBuffer::make(device, chunk_bytes));
    memory->shares.push_back(std::move(share));
  }
  memory->shape = std::move(shape);
  return memory;
}

Status UpdateMemory::prepare_codec(const kernels::CodecSpec& spec) {
  if (encoding && encoding->codec->spec() == spec) return {};
  encoding.reset();
  const Device& device = shape.devices.front();
  EncodeMemory made;
  FLUVIAL_ASSIGN(made.codec, kernels::make_device_codec(device, spec));
  FLUVIAL_ASSIGN(made.workspace, DeviceBuffer::make(device, made.codec->workspace_bytes({shape.layout, {}})));
  FLUVIAL_ASSIGN(made.pipeline, kernels::EncodePipeline::make(device, *made.codec, chunk_values_of(shape.layout)));
  encoding = std::move(made);
  return {};
}

}  // namespace fluvial::edge

#include "kernels/encode_pipeline.h"

namespace fluvial::kernels {

Result<EncodePipeline::Slot> EncodePipeline::make_slot(const Device& device, std::size_t bytes) {
  Slot slot;
  FLUVIAL_ASSIGN(slot.encoded, DeviceBuffer::make(device, bytes));
  FLUVIAL_ASSIGN(slot.bytes, PinnedBuffer::make(device, bytes));
  FLUVIAL_ASSIGN(slot.outcome, PinnedBuffer::make(device, sizeof(ChunkOutcome)));
  FLUVIAL_ASSIGN(slot.encoded_event, Event::make(device));
  FLUVIAL_ASSIGN(slot.copied_event, Event::make(device));
  return slot;
}

Result<EncodePipeline> EncodePipeline::make(const Device& device, const DeviceCodec& codec, std::size_t chunk_values) {
  EncodePipeline pipeline;
  pipeline.codec_ = &codec;
  FLUVIAL_ASSIGN(pipeline.encode_stream_, Stream::make(device));
  FLUVIAL_ASSIGN(pipeline.copy_stream_, Stream::make(device));
  for (Slot& slot : pipeline.slots_) {
    FLUVIAL_ASSIGN(slot, make_slot(device, codec.encoded_bytes_max(chunk_values)));
  }
  return pipeline;
}

// The slot's encoded chunk may be overwritten once the copy of its previous chunk is done: the stream waits for that,
// not the host.
Status EncodePipeline::encode(const DevicePlan& plan, DeviceSpan<float> residual, std::size_t chunk_index) {
  Slot& slot = slots_[chunk_index % slots_.size()];
  const auto first = static_cast<std::size_t>(plan.layout.first_value(chunk_index));
  const std::size_t size = plan.layout.size(chunk_index);
  const DeviceSpan<float> rest = residual.empty() ? residual : residual.subspan(first, size);
  FLUVIAL_TRY(slot.copied_event.hold(encode_stream_));
  FLUVIAL_TRY(codec_->encode_residual_chunk(plan, chunk_index, plan.values.subspan(first, size), slot.encoded.span(),
                                            rest, outcome_of(slot), encode_stream_));
  return slot.encoded_event.record(encode_stream_);
}

// The size is known only now.
Status EncodePipeline::copy(std::size_t chunk_index) {
  Slot& slot = slots_[chunk_index % slots_.size()];
  FLUVIAL_TRY(slot.encoded_event.wait());
  FLUVIAL_ASSIGN(slot.size, codec_->encoded_bytes(*outcome_of(slot)));
  FLUVIAL_TRY(copy_to_host(DeviceSpan<const std::byte>(slot.encoded.span().first(slot.size)),
                           slot.bytes.span().first(slot.size), copy_stream_));
  return slot.copied_event.record(copy_stream_);
}

Status EncodePipeline::run(const DevicePlan& plan, DeviceSpan<float> residual, const Leave& leave) {
  FLUVIAL_CHECK(residual.empty() || residual.size() == plan.values.size(), "a residual of another length");
  const Status status = run_all(plan, residual, leave);
  const Status encoded = encode_stream_.synchronize();  // even after an error: the slots are free again
  const Status copied = copy_stream_.synchronize();
  if (!status.ok()) return status;
  return encoded.ok() ? copied : encoded;
}

Status EncodePipeline::run_all(const DevicePlan& plan, DeviceSpan<float> residual, const Leave& leave) {
  const std::size_t chunks = plan.layout.chunk_count();
  for (std::size_t step = 0; step < chunks + 2; ++step) {
    if (step < chunks) FLUVIAL_TRY(encode(plan, residual, step));
    if (step >= 1 && step - 1 < chunks) FLUVIAL_TRY(copy(step - 1));
    if (step < 2) continue;
    Slot& slot = slots_[step % slots_.size()];  // of chunk step - 2
    FLUVIAL_TRY(slot.copied_event.wait());
    FLUVIAL_TRY(leave(step - 2, slot.bytes.span().first(slot.size)));
  }
  return {};
}

}  // namespace fluvial::kernels

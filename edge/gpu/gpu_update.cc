#include "edge/gpu/gpu_update.h"

#include <algorithm>
#include <chrono>
#include <tuple>
#include <utility>

#include "core/base/format.h"
#include "edge/gpu/update_memory.h"
#include "kernels/device_vector.h"
#include "kernels/reduce.h"

namespace fluvial::edge {
namespace {

using kernels::DeviceSpan;
using kernels::Stream;

template <typename T>
std::span<T> first_of(const kernels::PinnedBuffer& buffer, std::size_t count) {
  return buffer.as<T>().first(count);
}
DeviceSpan<float> first_of(const kernels::DeviceBuffer& buffer, std::size_t count) {
  return buffer.as<float>().first(count);
}

kernels::ChunkOutcome* outcome_in(const kernels::PinnedBuffer& buffer) {
  return buffer.as<kernels::ChunkOutcome>().data();
}

}  // namespace

GpuUpdate::GpuUpdate(SiteGpus& gpus, std::vector<GpuPart> parts, kernels::ChunkLayout layout)
    : gpus_(gpus), parts_(std::move(parts)), layout_(layout), reduced_(layout.chunk_count(), false) {
  double total = 0;
  for (const GpuPart& part : parts_) total += static_cast<double>(part.weight);
  for (std::size_t gpu = 0; gpu < gpus.devices().size(); ++gpu) {
    Group group{.gpu = gpu};
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (parts_[i].vector->gpu() != gpu) continue;
      group.parts.push_back(i);
      group.weights.push_back(parts_[i].weight);
      group.coefficients.push_back(static_cast<double>(parts_[i].weight) / total);
    }
    if (group.parts.empty()) continue;
    group.vectors.resize(group.parts.size());
    group_gpus_.push_back(gpu);
    groups_.push_back(std::move(group));
  }
  shares_.resize(groups_.size());
}

GpuUpdate::~GpuUpdate() {
  if (memory_) gpus_.keep_memory(std::move(memory_), period_);
}

Result<std::unique_ptr<GpuUpdate>> GpuUpdate::make(SiteGpus& gpus, std::vector<GpuPart> parts,
                                                   kernels::ChunkLayout layout) {
  FLUVIAL_CHECK(!parts.empty() && parts.size() <= kernels::kReduceInputsMax, "as many parts as can be reduced");
  for (const GpuPart& part : parts) {
    FLUVIAL_CHECK(part.vector->values().size() == layout.value_count, "a worker's vector of another length");
  }
  std::unique_ptr<GpuUpdate> update(new GpuUpdate(gpus, std::move(parts), layout));
  const Status taken = update->take_memory();
  if (taken.ok()) return update;
  if (taken.error().code != Code::kResourceExhausted) return update->on_gpu(taken).error();
  gpus.warn_once(format_text("no room for an update of {} values on the GPU ({}): it is made in host memory",
                             layout.value_count, taken.error().message));
  return std::unique_ptr<GpuUpdate>();
}

Status GpuUpdate::take_memory() {
  UpdateMemory::Shape shape{.devices = {}, .layout = layout_};
  for (const std::size_t gpu : group_gpus_) shape.devices.push_back(gpus_.devices()[gpu]);
  if (group_gpus_.size() > 1) FLUVIAL_TRY(gpus_.group_of(group_gpus_));  // which has memory of its own
  std::tie(memory_, period_) = gpus_.take_memory();
  if (memory_ && memory_->shape == shape) return {};
  memory_.reset();  // before there is more of it
  FLUVIAL_ASSIGN(memory_, UpdateMemory::make(std::move(shape)));
  return {};
}

DeviceSpan<float> GpuUpdate::p_of(std::size_t chunk_index) const {
  return memory_->p.as<float>().subspan(static_cast<std::size_t>(layout_.first_value(chunk_index)),
                                        layout_.size(chunk_index));
}

// ---- the mean --------------------------------------------------------------------------------------------------

// Reads a worker's values, the only time that they are read, because the worker may be writing to them: all later steps
// use p. With several GPUs, the root's share is in p already.
Status GpuUpdate::put_mean(std::size_t chunk_index) {
  const auto first = static_cast<std::size_t>(layout_.first_value(chunk_index));
  const DeviceSpan<float> p = p_of(chunk_index);
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    for (std::size_t i = 0; i < group.parts.size(); ++i) {
      group.vectors[i] = parts_[group.parts[i]].vector->values().subspan(first, p.size());
    }
    Stream& stream = memory_->work[g];
    if (groups_.size() == 1) return device_weighted_mean(group.vectors, group.weights, p, stream);
    const DeviceSpan<float> share = g == 0 ? p : first_of(memory_->shares[g - 1], p.size());
    FLUVIAL_TRY(device_combine(group.vectors, group.coefficients, share, stream));
    shares_[g] = share;
  }
  return gpus_.sum(group_gpus_, shares_, p, memory_->work);
}

template <typename Call>
Status GpuUpdate::timed(double SiteGpus::Counts::* step, const Call& call) {
  const auto begun = std::chrono::steady_clock::now();
  Status done = call();
  gpus_.spend(step, std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count());
  return done;
}

Status GpuUpdate::reduce(std::span<const std::size_t> chunks) {
  return timed(&SiteGpus::Counts::sum_seconds, [&] { return sum(chunks); });
}

Status GpuUpdate::sum(std::span<const std::size_t> chunks) {
  Status status;
  for (std::size_t i = 0; i < chunks.size() && status.ok(); ++i) {
    if (!reduced_[chunks[i]]) status = put_mean(chunks[i]);
  }
  const Status rested = rest();
  FLUVIAL_TRY(on_gpu(std::move(status)));
  FLUVIAL_TRY(on_gpu(rested));
  for (const std::size_t chunk : chunks) reduced_[chunk] = true;
  return {};
}

// The mean's place: the only part itself (which is then read once, too, when p is made), else p.
Result<DeviceSpan<const float>> GpuUpdate::mean_of(std::size_t chunk_index) {
  if (parts_.size() == 1) {
    return parts_.front().vector->values().subspan(static_cast<std::size_t>(layout_.first_value(chunk_index)),
                                                   layout_.size(chunk_index));
  }
  if (!reduced_[chunk_index]) FLUVIAL_TRY(put_mean(chunk_index));
  return DeviceSpan<const float>(p_of(chunk_index));
}

// ---- p ---------------------------------------------------------------------------------------------------------

// Puts all work for a chunk of p into the streams. Base and residual come in while the workers' vectors are reduced and
// the previous chunk is still on its way out. The chunk before that has left, so its slot is free.
Status GpuUpdate::put_p(std::size_t chunk_index, const From& from) {
  UpdateMemory& memory = *memory_;
  UpdateMemory::Slot& slot = memory.slots[chunk_index % memory.slots.size()];
  Stream& work = memory.work.front();
  const std::size_t size = layout_.size(chunk_index);
  const DeviceSpan<float> base = first_of(slot.base, from.base ? size : 0);
  const DeviceSpan<float> residual = first_of(slot.residual, from.residual ? size : 0);
  const DeviceSpan<float> p = p_of(chunk_index);
  FLUVIAL_TRY(copy_to_device(std::span<const float>(first_of<float>(slot.base_host, base.size())), base, memory.in));
  FLUVIAL_TRY(copy_to_device(std::span<const float>(first_of<float>(slot.residual_host, residual.size())), residual,
                             memory.in));
  FLUVIAL_TRY(slot.filled.record(memory.in));
  FLUVIAL_ASSIGN(const DeviceSpan<const float> mean, mean_of(chunk_index));
  FLUVIAL_TRY(slot.filled.hold(work));
  FLUVIAL_TRY(from.base ? device_pseudo_gradient(base, mean, {}, p, work) : device_fold(mean, {}, p, work));
  const auto screen = [&](const kernels::PinnedBuffer& outcome) {
    return device_screen(p, layout_.first_value(chunk_index), memory.screening.span(), outcome_in(outcome), work);
  };
  FLUVIAL_TRY(screen(slot.update_outcome));
  if (from.residual) {
    FLUVIAL_TRY(device_fold(p, residual, p, work));
    FLUVIAL_TRY(screen(slot.outcome));
  }
  FLUVIAL_TRY(slot.made.record(work));
  FLUVIAL_TRY(slot.made.hold(memory.out));
  FLUVIAL_TRY(copy_to_host(DeviceSpan<const float>(p), first_of<float>(slot.p_host, size), memory.out));
  return slot.left.record(memory.out);
}

Status GpuUpdate::bring(std::size_t chunk_index, const Read& read, const kernels::PinnedBuffer& into) {
  if (!read) return {};
  return read(layout_.first_value(chunk_index), first_of<float>(into, layout_.size(chunk_index)));
}

Status GpuUpdate::leave_p(std::size_t chunk_index, bool with_residual, const LeaveP& leave) {
  UpdateMemory::Slot& slot = memory_->slots[chunk_index % memory_->slots.size()];
  FLUVIAL_TRY(on_gpu(slot.left.wait()));
  const kernels::PinnedBuffer& of_p = with_residual ? slot.outcome : slot.update_outcome;
  return leave(
      chunk_index, first_of<float>(slot.p_host, layout_.size(chunk_index)),
      {kernels::screened_vector(*outcome_in(slot.update_outcome)), kernels::screened_vector(*outcome_in(of_p))});
}

Status GpuUpdate::read_p(std::span<float> into) {
  Stream& stream = memory_->work.front();
  const Status copied = copy_to_host(DeviceSpan<const float>(memory_->p.as<float>()), into, stream);
  const Status rested = stream.synchronize();
  FLUVIAL_TRY(on_gpu(copied));
  return on_gpu(rested);
}

// While the GPU works on chunk i - 1, the host brings base and residual of chunk i and takes p of chunk i - 2.
Status GpuUpdate::make_all(const From& from, const LeaveP& leave, Parallel& parallel) {
  const std::size_t chunks = layout_.chunk_count();
  for (std::size_t step = 0; step < chunks + 2; ++step) {
    UpdateMemory::Slot& slot = memory_->slots[step % memory_->slots.size()];
    FLUVIAL_TRY(on_gpu(slot.filled.wait()));
    FLUVIAL_TRY(parallel.for_each(3, [&](std::size_t piece) -> Status {
      if (piece == 2) return step < 2 ? Status() : leave_p(step - 2, from.residual != nullptr, leave);
      if (step >= chunks) return {};
      return piece == 0 ? bring(step, from.base, slot.base_host) : bring(step, from.residual, slot.residual_host);
    }));
    if (step < chunks) FLUVIAL_TRY(on_gpu(put_p(step, from)));
  }
  return {};
}

Status GpuUpdate::make_p(const From& from, const LeaveP& leave, Parallel& parallel) {
  return timed(&SiteGpus::Counts::sum_seconds, [&] { return make_whole(from, leave, parallel); });
}

Status GpuUpdate::make_whole(const From& from, const LeaveP& leave, Parallel& parallel) {
  const Status made = make_all(from, leave, parallel);
  const Status rested = rest();  // even after an error: no worker's memory is read any more
  if (!made.ok()) return made;
  FLUVIAL_TRY(on_gpu(rested));
  gpus_.count(&SiteGpus::Counts::summed);
  return {};
}

Status GpuUpdate::rest() {
  Status status = memory_->in.synchronize();
  for (Stream& stream : memory_->work) {
    const Status rested = stream.synchronize();
    if (status.ok()) status = rested;
  }
  const Status rested = memory_->out.synchronize();
  return status.ok() ? rested : status;
}

// ---- encoding --------------------------------------------------------------------------------------------------

Result<bool> GpuUpdate::takes(const kernels::CodecSpec& spec) {
  if (spec.kind == kernels::CodecKind::kTopk && layout_.value_count >> 32 != 0)
    return false;  // more than a GPU's numbers
  const Status prepared = memory_->prepare_codec(spec);
  if (prepared.ok()) return true;
  if (prepared.error().code == Code::kFailedPrecondition) return false;
  if (prepared.error().code != Code::kResourceExhausted) return on_gpu(prepared).error();
  gpus_.warn_once(format_text("no room to encode an update as {} on the GPU ({}): it is encoded in host memory",
                              kernels::to_string(spec), prepared.error().message));
  return false;
}

Status GpuUpdate::encode(const kernels::StreamKey& key, const LeaveChunk& leave) {
  return timed(&SiteGpus::Counts::encode_seconds, [&] { return encode_whole(key, leave); });
}

Status GpuUpdate::encode_whole(const kernels::StreamKey& key, const LeaveChunk& leave) {
  EncodeMemory& encoding = memory_->encoding.value();
  const kernels::VectorSchema schema{layout_, {}};
  Result<kernels::DevicePlan> plan = encoding.codec->prepare(schema, memory_->p.as<float>(), key, {},
                                                             encoding.workspace.span(), encoding.pipeline->stream());
  if (!plan.ok()) return on_gpu(plan.error());
  Status left;
  const Status encoded = encoding.pipeline->run(*plan, {}, [&](std::size_t chunk_index, ByteSpan bytes) {
    left = leave(chunk_index, bytes);
    return left;
  });
  if (!left.ok()) return left;
  FLUVIAL_TRY(on_gpu(encoded));
  gpus_.count(&SiteGpus::Counts::encoded);
  return {};
}

}  // namespace fluvial::edge

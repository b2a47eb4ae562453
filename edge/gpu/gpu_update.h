// One update, made where the workers' vectors lie:
//
//   update = GpuUpdate::make(gpus, parts, layout);
//   update->reduce(chunks);                 as often as chunks are in place while workers compute the rest of them
//   update->make_p(from, leave, parallel);  p = (base - mean) + residual, chunk by chunk to the host
//   if (*update->takes(codec)) update->encode(key, leave);
//
// On one GPU p and the encoded chunks are the host's, bit for bit (reduction direct, where there is a choice). The
// workers of several GPUs are added up on each of them, and these sums over the GPUs, in fp32: the same to rounding.
//
// One thread at a time; calls return when nothing of them goes on. An error of a GPU itself is kInternal, and
// SiteGpus::fault() has it.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/base/parallel.h"
#include "edge/gpu/site_gpus.h"
#include "kernels/device_codec.h"

namespace fluvial::edge {

struct GpuPart {
  std::shared_ptr<const WorkerVector> vector;
  std::uint32_t weight = 0;  // 1 to 2^29 - 1
};

class GpuUpdate {
 public:
  // 1 to kReduceInputsMax parts of layout.value_count values each. Null where a GPU or the host has no room for it (a
  // warning says so, once): the caller then does without.
  static Result<std::unique_ptr<GpuUpdate>> make(SiteGpus& gpus, std::vector<GpuPart> parts,
                                                 kernels::ChunkLayout layout);
  ~GpuUpdate();
  GpuUpdate(const GpuUpdate&) = delete;
  GpuUpdate& operator=(const GpuUpdate&) = delete;

  // The mean of these chunks, kept on the GPU; those that are there already are left out.
  Status reduce(std::span<const std::size_t> chunks);

  // Where the rest of it comes from. Base, residual and LeaveP are called for one chunk at a time each, but beside each
  // other.
  using Read = std::function<Status(std::uint64_t first_value, std::span<float> into)>;
  struct From {
    Read base;      // none: the parts are updates
    Read residual;  // none: zero
  };
  // What the screen found in a chunk (kDataLoss: a value is not finite).
  struct Screened {
    Result<kernels::ScreenReport> update;  // before the residual is added
    Result<kernels::ScreenReport> p;
  };
  // Gets every chunk of p, in order. Its first error ends the call. The last call of one object but read_p(), takes()
  // and encode(), and those only after it succeeded.
  using LeaveP = std::function<Status(std::size_t chunk_index, std::span<const float> p, const Screened&)>;
  Status make_p(const From& from, const LeaveP& leave, Parallel& parallel);

  // All of p once more, also after encode().
  Status read_p(std::span<float> into);

  // Whether the GPU has this codec, and room for what it needs (a warning says so, once, where it has not). p is
  // finite.
  Result<bool> takes(const kernels::CodecSpec& spec);
  // Gets every chunk's bytes, in order; its first error ends the call. After takes() said yes.
  using LeaveChunk = std::function<Status(std::size_t chunk_index, ByteSpan bytes)>;
  Status encode(const kernels::StreamKey& key, const LeaveChunk& leave);

 private:
  // The parts on one GPU.
  struct Group {
    std::size_t gpu = 0;
    std::vector<std::size_t> parts;
    std::vector<std::uint32_t> weights;
    std::vector<double> coefficients;                       // weight / weight of all
    std::vector<kernels::DeviceSpan<const float>> vectors;  // of one chunk
  };
  GpuUpdate(SiteGpus& gpus, std::vector<GpuPart> parts, kernels::ChunkLayout layout);

  Status take_memory();
  kernels::DeviceSpan<float> p_of(std::size_t chunk_index) const;
  Status put_mean(std::size_t chunk_index);
  Result<kernels::DeviceSpan<const float>> mean_of(std::size_t chunk_index);
  Status put_p(std::size_t chunk_index, const From& from);
  Status bring(std::size_t chunk_index, const Read& read, const kernels::PinnedBuffer& into);
  Status leave_p(std::size_t chunk_index, bool with_residual, const LeaveP& leave);
  Status make_all(const From& from, const LeaveP& leave, Parallel& parallel);
  Status rest();  // until no stream has anything to do
  Status on_gpu(Status status) { return gpus_.noted(std::move(status)); }

  SiteGpus& gpus_;
  const std::vector<GpuPart> parts_;
  const kernels::ChunkLayout layout_;
  std::vector<Group> groups_;  // by GPU; the first makes the update
  std::vector<std::size_t> group_gpus_;
  std::unique_ptr<UpdateMemory> memory_;
  std::uint64_t period_ = 0;                              // in which it was taken
  std::vector<kernels::DeviceSpan<const float>> shares_;  // of one chunk
  std::vector<bool> reduced_;
};

}  // namespace fluvial::edge

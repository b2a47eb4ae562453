// One update, made on the GPUs that hold the workers' vectors:
//
//   update = GpuUpdate::make(gpus, parts, layout);
//   update->reduce(chunks);                 whenever chunks are in place while workers still compute the others
//   update->make_p(from, leave, parallel);  p = (base - mean) + residual, chunk by chunk to the host
//   if (*update->takes(codec)) update->encode(key, leave);
//
// On one GPU p and the encoded chunks are the host's, bit for bit (with reduction direct). With several GPUs, each adds
// up its own workers, and these sums are added over the GPUs, in fp32: the same up to rounding.
//
// One thread at a time; calls return when all of their work is done. An error of a GPU itself is kInternal, and is kept
// in SiteGpus::fault().
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
  // 1 to kReduceInputsMax parts of layout.value_count values each. Null when a GPU or the host has no room for it (a
  // warning says so, once): the caller then uses the host.
  static Result<std::unique_ptr<GpuUpdate>> make(SiteGpus& gpus, std::vector<GpuPart> parts,
                                                 kernels::ChunkLayout layout);
  ~GpuUpdate();
  GpuUpdate(const GpuUpdate&) = delete;
  GpuUpdate& operator=(const GpuUpdate&) = delete;

  // The mean of these chunks, kept on the GPU; chunks that are there already are skipped.
  Status reduce(std::span<const std::size_t> chunks);

  // The sources of the rest of p. Base, residual and LeaveP are each called for one chunk at a time, but concurrently
  // with each other.
  using Read = std::function<Status(std::uint64_t first_value, std::span<float> into)>;
  struct From {
    Read base;      // none: the parts are updates
    Read residual;  // none: zero
  };
  // The screen's report on a chunk (kDataLoss: a value is not finite).
  struct Screened {
    Result<kernels::ScreenReport> update;  // before the residual is added
    Result<kernels::ScreenReport> p;
  };
  // LeaveP gets every chunk of p, in order; its first error ends the call. After make_p() only read_p(), takes() and
  // encode() may be called, and only if it succeeded.
  using LeaveP = std::function<Status(std::size_t chunk_index, std::span<const float> p, const Screened&)>;
  Status make_p(const From& from, const LeaveP& leave, Parallel& parallel);

  // All of p once more, even after encode().
  Status read_p(std::span<float> into);

  // Whether the GPU has this codec and room for its memory (if not, a warning says so, once). p must be
  // finite.
  Result<bool> takes(const kernels::CodecSpec& spec);
  // LeaveChunk gets every chunk's bytes, in order; its first error ends the call. Only after takes() returned true.
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
  // What a call took, also one that failed.
  template <typename Call>
  Status timed(double SiteGpus::Counts::* step, const Call& call);
  Status sum(std::span<const std::size_t> chunks);
  Status make_whole(const From& from, const LeaveP& leave, Parallel& parallel);
  Status encode_whole(const kernels::StreamKey& key, const LeaveChunk& leave);
  Status rest();  // waits until all streams are idle
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

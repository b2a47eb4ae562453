// The arithmetic of one site's update: the workers' models averaged, subtracted from the base, and the residual added.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/base/parallel.h"
#include "core/store/site_store.h"
#include "edge/update/job.h"

namespace fluvial::edge {

class GpuUpdate;

struct Update {
  Buffer p;  // schema.value_count() fp32 values
  std::vector<std::int64_t> integers;
  float max_abs = 0;  // of p
  // Of a codec with a state (codec_state.h), else empty:
  Buffer own;    // the training's own update; empty if nobody asks for its norm
  Buffer state;  // as it is once p is made

  std::span<float> values() { return floats(p); }
  std::span<float> own_values() { return floats(own); }

 private:
  static std::span<float> floats(Buffer& memory) {
    return {reinterpret_cast<float*>(memory.data()), memory.size() / sizeof(float)};  // NOLINT: as it was taken
  }
};

// The same on the host, chunk by chunk: what is done with a chunk next finds it in the cache.
class HostUpdate {
 public:
  // Uses up the early reduction. `job` outlives it. A default `residual` is zero.
  static Result<std::unique_ptr<HostUpdate>> of(const UpdateJob& job, store::Residual residual);
  ~HostUpdate();

  const std::vector<std::int64_t>& integers() const { return update_.integers; }
  std::span<const float> values() { return update_.values(); }  // of p: those of the chunks that were made
  // Each chunk once; any thread. Its greatest magnitude; an error as make_update()'s.
  Result<float> make(std::size_t chunk);
  // After the last chunk:
  float max_abs() const;
  Update take();

 private:
  struct Sources;
  HostUpdate(const UpdateJob& job, std::unique_ptr<Sources> sources);
  Result<float> add_residual(std::size_t chunk, std::span<float> p) const;
  Result<std::span<const float>> mean(std::size_t chunk, std::span<float> p, std::vector<float>& scratch) const;
  Status mean_update(std::size_t chunk, std::span<float> p) const;

  const UpdateJob& job_;
  std::unique_ptr<Sources> sources_;
  kernels::ChunkLayout layout_;
  Update update_;
  std::vector<float> max_abs_;  // by chunk
};

// Models are averaged and subtracted from the base; updates are averaged as they are; if there are both, each model
// becomes an update first. The greatest of the workers' integers is taken, as the coordinator does with the sites'.
// kDataLoss, naming tensor and index, when a value of the update, before the residual is added, is not finite or beyond
// the plan's value_abs_max; p is finite, and may be beyond it. `gpu` (gpu_update_of()), if given, makes the update,
// with the same bits if it is one GPU.
Result<Update> make_update(const UpdateJob& job, GpuUpdate* gpu, const store::Residual& residual, Parallel& parallel);

}  // namespace fluvial::edge

// A site's GPUs, the workers' vectors in their memory, and the memory that an update needs there. Made once, when the
// agent starts.
//
// Thread safe. The agent takes no memory on a GPU until the first update. Then it takes what update_memory.h lists, and
// keeps one such set from round to round until release(). CUDA takes memory for the process when the first vector is
// opened: an agent whose workers leave nothing on a GPU takes nothing there.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/device_group.h"
#include "kernels/device_memory.h"

namespace fluvial::edge {

class SiteGpus;
struct UpdateMemory;

// A worker's flat vector of fp32 values in a GPU's memory; open as long as this object lives. The worker may be writing
// to it: read each value only once.
class WorkerVector {
 public:
  std::size_t gpu() const { return gpu_; }  // its place in SiteGpus::devices()
  kernels::DeviceSpan<const float> values() const { return values_; }
  // Copies values from `first` on to the host. Any thread; of one GPU one copy at a time.
  Status read(std::uint64_t first, std::span<float> into) const;

 private:
  friend class SiteGpus;
  WorkerVector(std::shared_ptr<SiteGpus> gpus, std::size_t gpu, kernels::ImportedMemory memory,
               kernels::DeviceSpan<const float> values);

  std::shared_ptr<SiteGpus> gpus_;
  std::size_t gpu_;
  kernels::ImportedMemory memory_;  // nothing where it is this process' own
  kernels::DeviceSpan<const float> values_;
};

struct SiteGpusOptions {
  std::string nccl_library = kernels::kNcclLibrary;
  // One line for the log; any thread.
  std::function<void(const std::string&)> note = nullptr;
  std::function<void(const std::string&)> warn = nullptr;
};

class SiteGpus : public std::enable_shared_from_this<SiteGpus> {
 public:
  // At least one device, each once. kUnavailable or kInvalidArgument, with the reason, when one cannot be used.
  static Result<std::shared_ptr<SiteGpus>> make(std::vector<kernels::Device> devices, SiteGpusOptions options = {});
  ~SiteGpus();
  SiteGpus(const SiteGpus&) = delete;
  SiteGpus& operator=(const SiteGpus&) = delete;

  const std::vector<kernels::Device>& devices() const { return devices_; }
  std::vector<kernels::DeviceUuid> uuids() const;  // in the order of devices()

  // Opens a vector that a worker names. kInvalidArgument, in one line for that worker, when this agent does not have
  // the GPU, the memory cannot be opened, or the vector does not fit in it or does not begin at a multiple of 16 bytes.
  Result<std::shared_ptr<const WorkerVector>> open(const kernels::DeviceUuid& device,
                                                   const kernels::MemoryHandle& handle, std::uint64_t first_byte,
                                                   std::uint64_t value_count);
  // A vector in memory of this process; the memory outlives it.
  std::shared_ptr<const WorkerVector> own(std::size_t gpu, kernels::DeviceSpan<const float> values);

  // Set once a GPU has failed. From then on CUDA is unusable in this process, and only a new process can use it.
  std::optional<Error> fault() const;

  // Frees the memory kept for the next update, when none is expected. Memory in use is freed when its update is done.
  void release();

  // Updates whose sum was made on the GPUs, and those of them that were encoded there; how long that took, and the
  // memory on GPUs that updates take, or that is kept for the next one.
  struct Counts {
    std::uint64_t summed = 0;
    std::uint64_t encoded = 0;
    double sum_seconds = 0;
    double encode_seconds = 0;
    std::uint64_t memory_bytes = 0;
  };
  Counts counts() const;

 private:
  friend class GpuUpdate;
  friend class WorkerVector;
  struct Gpu;
  SiteGpus(std::vector<kernels::Device> devices, SiteGpusOptions options);

  std::shared_ptr<const WorkerVector> vector_of(std::size_t gpu, kernels::ImportedMemory memory,
                                                kernels::DeviceSpan<const float> values);

  Result<kernels::DeviceGroup*> group_of(const std::vector<std::size_t>& gpus);
  Status sum(const std::vector<std::size_t>& gpus, std::span<const kernels::DeviceSpan<const float>> from,
             kernels::DeviceSpan<float> out, std::span<kernels::Stream> streams);
  Status noted(Status status);  // remembers an error of a device
  void count(std::uint64_t Counts::* what);
  void spend(double Counts::* what, double seconds);
  void warn_once(const std::string& line);
  // The kept memory, of whatever shape, or null; and the period between two releases, to be passed to keep_memory().
  std::pair<std::unique_ptr<UpdateMemory>, std::uint64_t> take_memory();
  void keep_memory(std::unique_ptr<UpdateMemory> memory, std::uint64_t period);

  const std::vector<kernels::Device> devices_;
  const SiteGpusOptions options_;
  std::vector<std::unique_ptr<Gpu>> gpus_;

  mutable std::mutex mutex_;
  std::unique_ptr<UpdateMemory> kept_;
  std::uint64_t period_ = 0;
  std::optional<Error> fault_;
  Counts counts_;
  bool warned_ = false;

  std::mutex summing_;                                               // a group does one thing at a time
  std::map<std::vector<std::size_t>, kernels::DeviceGroup> groups_;  // by its GPUs
};

}  // namespace fluvial::edge

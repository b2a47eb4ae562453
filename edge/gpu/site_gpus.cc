#include "edge/gpu/site_gpus.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/format.h"
#include "edge/gpu/update_memory.h"

namespace fluvial::edge {
namespace {

constexpr std::uint64_t kAlignment = 16;

Error invalid(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }

}  // namespace

struct SiteGpus::Gpu {
  kernels::DeviceUuid uuid{};
  std::mutex reading;
  std::optional<kernels::Stream> reads;  // of WorkerVector::read, once there was one
};

// ---- vectors ---------------------------------------------------------------------------------------------------

WorkerVector::WorkerVector(std::shared_ptr<SiteGpus> gpus, std::size_t gpu, kernels::ImportedMemory memory,
                           kernels::DeviceSpan<const float> values)
    : gpus_(std::move(gpus)), gpu_(gpu), memory_(std::move(memory)), values_(values) {}

Status WorkerVector::read(std::uint64_t first, std::span<float> into) const {
  SiteGpus::Gpu& gpu = *gpus_->gpus_[gpu_];
  const std::lock_guard lock(gpu.reading);
  if (!gpu.reads) {
    FLUVIAL_ASSIGN(gpu.reads, kernels::Stream::make(gpus_->devices_[gpu_]));
  }
  const kernels::DeviceSpan<const float> values = values_.subspan(static_cast<std::size_t>(first), into.size());
  Status status = kernels::copy_to_host(values, into, *gpu.reads);
  if (status.ok()) status = gpu.reads->synchronize();
  return gpus_->noted(std::move(status));
}

// ---- the GPUs --------------------------------------------------------------------------------------------------

SiteGpus::SiteGpus(std::vector<kernels::Device> devices, SiteGpusOptions options)
    : devices_(std::move(devices)), options_(std::move(options)) {}
SiteGpus::~SiteGpus() = default;

Result<std::shared_ptr<SiteGpus>> SiteGpus::make(std::vector<kernels::Device> devices, SiteGpusOptions options) {
  if (devices.empty()) return invalid("no GPU is named");
  const std::shared_ptr<SiteGpus> gpus(new SiteGpus(std::move(devices), std::move(options)));
  for (const kernels::Device& device : gpus->devices_) {
    auto gpu = std::make_unique<Gpu>();
    FLUVIAL_ASSIGN(gpu->uuid, kernels::device_uuid(device));
    for (const auto& other : gpus->gpus_) {
      if (other->uuid == gpu->uuid) return invalid(format_text("GPU {} is named twice", kernels::to_string(device)));
    }
    gpus->gpus_.push_back(std::move(gpu));
  }
  return gpus;
}

std::vector<kernels::DeviceUuid> SiteGpus::uuids() const {
  std::vector<kernels::DeviceUuid> uuids;
  for (const auto& gpu : gpus_) uuids.push_back(gpu->uuid);
  return uuids;
}

Result<std::shared_ptr<const WorkerVector>> SiteGpus::open(const kernels::DeviceUuid& device,
                                                           const kernels::MemoryHandle& handle,
                                                           std::uint64_t first_byte, std::uint64_t value_count) {
  const auto found = std::ranges::find_if(gpus_, [&](const auto& gpu) { return gpu->uuid == device; });
  if (found == gpus_.end()) {
    return invalid("its vector lies on GPU " + to_hex(device) + ", which this agent does not use");
  }
  if (first_byte % kAlignment != 0) {
    return invalid(format_text("its vector begins at byte {}, expected a multiple of {}", first_byte, kAlignment));
  }
  const auto gpu = static_cast<std::size_t>(found - gpus_.begin());
  FLUVIAL_ASSIGN(kernels::ImportedMemory memory, kernels::ImportedMemory::open(devices_[gpu], handle));
  const kernels::DeviceSpan<const std::byte> bytes = memory.span();
  if (first_byte > bytes.size() || value_count > (bytes.size() - first_byte) / sizeof(float)) {
    return invalid(format_text("its memory on {} holds {} bytes, too few for {} values from byte {} on",
                               kernels::to_string(devices_[gpu]), bytes.size(), value_count, first_byte));
  }
  const auto* const first =
      reinterpret_cast<const float*>(bytes.data() + first_byte);  // NOLINT: aligned, checked above
  return vector_of(gpu, std::move(memory), {first, static_cast<std::size_t>(value_count)});
}

std::shared_ptr<const WorkerVector> SiteGpus::own(std::size_t gpu, kernels::DeviceSpan<const float> values) {
  return vector_of(gpu, {}, values);
}

std::shared_ptr<const WorkerVector> SiteGpus::vector_of(std::size_t gpu, kernels::ImportedMemory memory,
                                                        kernels::DeviceSpan<const float> values) {
  FLUVIAL_CHECK(gpu < devices_.size(), "a GPU that the site does not have");
  return std::shared_ptr<const WorkerVector>(new WorkerVector(shared_from_this(), gpu, std::move(memory), values));
}

std::pair<std::unique_ptr<UpdateMemory>, std::uint64_t> SiteGpus::take_memory() {
  const std::lock_guard lock(mutex_);
  return {std::move(kept_), period_};
}

// Memory that is not kept is freed without the lock.
void SiteGpus::keep_memory(std::unique_ptr<UpdateMemory> memory, std::uint64_t period) {
  const std::lock_guard lock(mutex_);
  if (period == period_) std::swap(kept_, memory);
  counts_.memory_bytes = kept_ ? kept_->device_bytes() : 0;
}

void SiteGpus::release() {
  std::unique_ptr<UpdateMemory> unused;
  const std::lock_guard lock(mutex_);
  unused = std::move(kept_);
  counts_.memory_bytes = 0;
  ++period_;
}

// ---- sums, faults, counts --------------------------------------------------------------------------------------

Result<kernels::DeviceGroup*> SiteGpus::group_of(const std::vector<std::size_t>& gpus) {
  const std::lock_guard lock(summing_);
  const auto found = groups_.find(gpus);
  if (found != groups_.end()) return &found->second;
  std::vector<kernels::Device> devices;
  for (const std::size_t gpu : gpus) devices.push_back(devices_[gpu]);
  FLUVIAL_ASSIGN(kernels::DeviceGroup group, kernels::DeviceGroup::make(devices, options_.nccl_library));
  std::string names;
  for (const kernels::Device& device : devices) names += (names.empty() ? "" : ", ") + kernels::to_string(device);
  if (options_.note) options_.note(format_text("sums over {} by {}", names, group.transport()));
  return &groups_.emplace(gpus, std::move(group)).first->second;
}

Status SiteGpus::sum(const std::vector<std::size_t>& gpus, std::span<const kernels::DeviceSpan<const float>> from,
                     kernels::DeviceSpan<float> out, std::span<kernels::Stream> streams) {
  FLUVIAL_ASSIGN(kernels::DeviceGroup* const group, group_of(gpus));
  const std::lock_guard lock(summing_);
  return group->reduce(from, out, streams);
}

Status SiteGpus::noted(Status status) {
  if (status.ok() || status.error().code != Code::kInternal) return status;
  const std::lock_guard lock(mutex_);
  if (!fault_) fault_ = status.error();
  return status;
}

std::optional<Error> SiteGpus::fault() const {
  const std::lock_guard lock(mutex_);
  return fault_;
}

SiteGpus::Counts SiteGpus::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void SiteGpus::count(std::uint64_t Counts::* what) {
  const std::lock_guard lock(mutex_);
  ++(counts_.*what);
}

void SiteGpus::spend(double Counts::* what, double seconds) {
  const std::lock_guard lock(mutex_);
  counts_.*what += seconds;
}

void SiteGpus::warn_once(const std::string& line) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(warned_, true)) return;
  }
  if (options_.warn) options_.warn(line);
}

}  // namespace fluvial::edge

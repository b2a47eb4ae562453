// The GPUs of a site's agent: which ones the settings mean, and what workers leave in their memory.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "core/local/device_memory.h"
#include "core/telemetry/log.h"
#include "edge/gpu/site_gpus.h"

namespace fluvial::edge {

// What core/local holds of one result. Another object for each task, though a worker's vector lies where it lay before:
// so two results can be told apart.
class GpuMemory final : public local::DeviceMemory {
 public:
  explicit GpuMemory(std::shared_ptr<const WorkerVector> vector) : vector_(std::move(vector)) {}
  const std::shared_ptr<const WorkerVector>& vector() const { return vector_; }

 private:
  std::shared_ptr<const WorkerVector> vector_;
};

// Null for null.
std::shared_ptr<const WorkerVector> vector_in(const std::shared_ptr<const local::DeviceMemory>& memory);

// As the setting `gpus` says; null when none is used, and the log says why. An error only where GPUs were named.
Result<std::shared_ptr<SiteGpus>> open_gpus(std::string_view setting, const telemetry::Logger& log);

// For the workers' server. An error is for the worker to read.
Result<std::shared_ptr<const local::DeviceMemory>> open_memory(SiteGpus& gpus, const local::DeviceLocation& at,
                                                               std::uint64_t values);

}  // namespace fluvial::edge

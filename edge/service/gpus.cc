#include "edge/service/gpus.h"

#include <string>
#include <vector>

#include "core/config/settings.h"

namespace fluvial::edge {
namespace {

// Whether workers and the agent can be on it at the same time.
Status check_shared(const kernels::Device& device) {
  FLUVIAL_TRY(kernels::check_device(device));
  FLUVIAL_ASSIGN(const kernels::CudaDevice about, kernels::cuda_device(device.index));
  if (!about.is_exclusive) return {};
  return Error{Code::kUnavailable, kernels::to_string(device) + " is set to serve one process alone"};
}

// Those that can be used; the log says why another cannot.
Result<std::vector<kernels::Device>> all_devices(const telemetry::Logger& log) {
  FLUVIAL_ASSIGN(const int count, kernels::cuda_device_count());
  std::vector<kernels::Device> devices;
  for (int i = 0; i < count; ++i) {
    const kernels::Device device = kernels::Device::cuda(i);
    const Status usable = check_shared(device);
    if (usable.ok()) {
      devices.push_back(device);
    } else {
      log.info("a GPU is left out", {{"reason", usable.error().message}});
    }
  }
  if (devices.empty()) return Error{Code::kUnavailable, "none of this machine's can be used"};
  return devices;
}

Result<std::vector<kernels::Device>> named_devices(std::string_view setting) {
  FLUVIAL_ASSIGN(const std::vector<std::string> names, config::parse_gpus(setting));
  std::vector<kernels::Device> devices;
  for (const std::string& name : names) {
    FLUVIAL_ASSIGN(const kernels::Device device, kernels::parse_device(name));
    devices.push_back(device);
  }
  return devices;
}

// "cuda:0 NVIDIA H100 80GB HBM3 GPU-0123...": by the last one nvidia-smi -L finds it.
std::string describe(const kernels::Device& device, const local::DeviceUuid& uuid) {
  std::string text = kernels::to_string(device);
  if (device.kind == kernels::DeviceKind::kCuda) {
    if (const auto about = kernels::cuda_device(device.index); about.ok()) text += " " + about->name;
  }
  return text + " " + local::to_string(uuid);
}

Result<std::shared_ptr<SiteGpus>> make(Result<std::vector<kernels::Device>> devices, const telemetry::Logger& log) {
  if (!devices.ok()) return devices.error();
  SiteGpusOptions options;
  options.note = [log](const std::string& line) { log.info("about GPUs", {{"reason", line}}); };
  options.warn = [log](const std::string& line) {
    log.warn("GPUs cannot do this; the host does it from here on", {{"reason", line}});
  };
  FLUVIAL_ASSIGN(std::shared_ptr<SiteGpus> gpus, SiteGpus::make(std::move(*devices), std::move(options)));
  std::string list;
  for (std::size_t i = 0; i < gpus->devices().size(); ++i) {
    list += (i == 0 ? "" : ", ") + describe(gpus->devices()[i], gpus->uuids()[i]);
  }
  log.info("workers may leave their results on GPUs", {{"gpus", list}});
  return gpus;
}

}  // namespace

std::shared_ptr<const WorkerVector> vector_in(const std::shared_ptr<const local::DeviceMemory>& memory) {
  if (!memory) return nullptr;
  const auto* const opened = dynamic_cast<const GpuMemory*>(memory.get());
  FLUVIAL_CHECK(opened != nullptr, "device memory that open_memory() did not open");
  return opened->vector();
}

Result<std::shared_ptr<SiteGpus>> open_gpus(std::string_view setting, const telemetry::Logger& log) {
  const auto none = [&log](const std::string& why) {
    log.info("no GPU is used", {{"reason", why}});
    return std::shared_ptr<SiteGpus>();
  };
  if (setting == "none") return none("gpus = none");
  const bool any = setting == "auto";
  Result<std::shared_ptr<SiteGpus>> gpus = make(any ? all_devices(log) : named_devices(setting), log);
  if (gpus.ok()) return gpus;
  if (any) return none(gpus.error().message);
  return Error{gpus.error().code, "gpus = '" + std::string(setting) + "': " + gpus.error().message};
}

Result<std::shared_ptr<const local::DeviceMemory>> open_memory(SiteGpus& gpus, const local::DeviceLocation& at,
                                                               std::uint64_t values) {
  auto vector = gpus.open(at.device, kernels::MemoryHandle{at.handle}, at.first_byte, values);
  if (vector.ok()) return std::shared_ptr<const local::DeviceMemory>(std::make_shared<GpuMemory>(std::move(*vector)));
  return Error{vector.error().code,
               vector.error().message + "; fluvial.connect(device=False) brings results in host memory instead"};
}

}  // namespace fluvial::edge

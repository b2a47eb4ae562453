// Results in the memory of a GPU. This room knows where they are and who holds them. The agent knows what a device is,
// and how to open another process's memory (WorkerServerOptions::open_device).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/base/result.h"

namespace fluvial::local {

using DeviceUuid = std::array<std::byte, 16>;
inline constexpr std::uint64_t kDeviceAlignment = 16;  // of a vector in its allocation

std::string to_string(const DeviceUuid& uuid);  // "GPU-0123abcd-...", as the driver's tools write it

// Where a worker's vector is, by the worker's word.
struct DeviceLocation {
  DeviceUuid device{};
  std::array<std::byte, 64> handle{};  // of an allocation, for another process to open
  std::uint64_t first_byte = 0;        // in the allocation; a multiple of kDeviceAlignment
  bool operator==(const DeviceLocation&) const = default;
};

// A worker's vector in a device's memory, held open by this process; closed with its last owner.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
};

// Opens that many fp32 values in a worker's memory. The device is one of those that were offered; nothing else in the
// location can be trusted. An error ends that worker's connection, and the worker is told of it.
using OpenDevice =
    std::function<Result<std::shared_ptr<const DeviceMemory>>(const DeviceLocation& at, std::uint64_t values)>;

}  // namespace fluvial::local

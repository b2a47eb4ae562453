// Results in the memory of a GPU. This room says where they are and who holds them; what a device is, and how the
// memory of another process is opened, the agent knows (WorkerServerOptions::open_device).
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

// Where a worker says that a vector lies.
struct DeviceLocation {
  DeviceUuid device{};
  std::array<std::byte, 64> handle{};  // of an allocation, for another process to open
  std::uint64_t first_byte = 0;        // in the allocation; a multiple of kDeviceAlignment
  bool operator==(const DeviceLocation&) const = default;
};

// A worker's vector in a device's memory, as whoever opened it holds it; closed with its last owner.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
};

// Opens the memory of a worker: so many fp32 values there. The device is one of those that were offered; nothing else
// of the location is to be believed. An error ends that worker's connection, and is told to it.
using OpenDevice =
    std::function<Result<std::shared_ptr<const DeviceMemory>>(const DeviceLocation& at, std::uint64_t values)>;

}  // namespace fluvial::local

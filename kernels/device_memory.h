// Memory of a device that another process of the same machine sees: one exports a handle of its allocation, the other
// opens it, and both have the same bytes without a copy. The processes order their own accesses: the exporting process
// synchronises before it sends the handle, and keeps the memory until the other is done.
#pragma once

#include <array>
#include <cstddef>

#include "kernels/device.h"

namespace fluvial::kernels {

// The same in every process, and on no other device of the world.
using DeviceUuid = std::array<std::byte, 16>;
// kFailedPrecondition for the CPU, which has none.
Result<DeviceUuid> device_uuid(const Device& device);

// Names an allocation to other processes for as long as it lives. On CUDA a cudaIpcMemHandle_t. As bytes it may come
// from anybody: open() checks it.
struct MemoryHandle {
  std::array<std::byte, 64> bytes{};
  bool operator==(const MemoryHandle&) const = default;
};

// kFailedPrecondition, with the reason, when such memory cannot be shared (all of the CPU's). On CUDA the driver may
// share a block of 2 MiB that holds other small allocations, too: keep secrets in other processes.
Result<MemoryHandle> export_memory(const DeviceBuffer& buffer);

// Memory of another process, read-only; closed when this goes. Opening the same handle again is cheap.
class ImportedMemory {
 public:
  ImportedMemory() = default;
  // On the device that holds the memory. kInvalidArgument, with the reason and what to do, when it cannot be opened.
  // CUDA opens no handle of the process's own.
  static Result<ImportedMemory> open(const Device& device, const MemoryHandle& handle);
  // The whole allocation; its size comes from the driver, not from the other process.
  DeviceSpan<const std::byte> span() const { return span_; }

 private:
  BackendHandle handle_;
  DeviceSpan<const std::byte> span_;
};

}  // namespace fluvial::kernels

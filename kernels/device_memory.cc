#include "kernels/device_memory.h"

#include "kernels/device_backend.h"

namespace fluvial::kernels {

Result<DeviceUuid> device_uuid(const Device& device) {
  FLUVIAL_ASSIGN(Backend* const backend, backend_of(device));
  return backend->uuid(device.index);
}

Result<MemoryHandle> export_memory(const DeviceBuffer& buffer) {
  FLUVIAL_CHECK(buffer.span().data() != nullptr, "a buffer that was never made is exported");
  return buffer.backend().export_memory(buffer.span().data());
}

Result<ImportedMemory> ImportedMemory::open(const Device& device, const MemoryHandle& handle) {
  FLUVIAL_ASSIGN(Backend* const backend, backend_of(device));
  FLUVIAL_ASSIGN(const OpenedMemory opened, backend->open_memory(device.index, handle));
  ImportedMemory memory;
  memory.handle_ = BackendHandle(backend, opened.handle, [](Backend& b, void* h) { b.close_memory(h); });
  memory.span_ = opened.span;
  return memory;
}

}  // namespace fluvial::kernels

// The interface behind device.h, device_memory.h, device_codec.h and device_vector.h for one kind of device. Internal
// to kernels/.
#pragma once

#include <memory>

#include "kernels/device.h"
#include "kernels/device_codec.h"
#include "kernels/device_lowrank.h"
#include "kernels/device_memory.h"
#include "kernels/device_robust_ops.h"
#include "kernels/device_vector.h"

namespace fluvial::kernels {

// The result of open_memory; `handle` is for close_memory.
struct OpenedMemory {
  void* handle = nullptr;
  DeviceSpan<const std::byte> span;
};

// Handles are the backend's own; sizes are above zero, devices were checked.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual Status check(int device_index) = 0;

  virtual Result<void*> make_stream(int device_index) = 0;
  virtual void free_stream(void* stream) = 0;
  virtual Status synchronize(void* stream) = 0;

  // The stream as a library knows it. The library's work comes after everything that is in the stream.
  virtual void* native_stream(void* stream) = 0;

  virtual Result<void*> make_event(int device_index) = 0;
  virtual void free_event(void* event) = 0;
  virtual Status record(void* event, void* stream) = 0;
  virtual Status wait(void* event) = 0;
  virtual Status hold(void* stream, void* event) = 0;

  virtual Result<void*> allocate(int device_index, std::size_t bytes) = 0;
  virtual void free(void* memory) = 0;
  virtual Result<void*> allocate_pinned(int device_index, std::size_t bytes) = 0;  // filled with zeros
  virtual void free_pinned(void* memory) = 0;
  virtual Status copy(void* to, const void* from, std::size_t bytes, void* stream) = 0;
  // Lets a device reach another's memory directly, if possible: this makes copies between them faster.
  virtual void reach(int device_index, int other_index) = 0;
  virtual Status zero(void* to, std::size_t bytes, void* stream) = 0;

  virtual Result<DeviceUuid> uuid(int device_index) = 0;
  virtual Result<MemoryHandle> export_memory(void* memory) = 0;
  virtual Result<OpenedMemory> open_memory(int device_index, const MemoryHandle& handle) = 0;
  virtual void close_memory(void* handle) = 0;

  // The spec was checked. kFailedPrecondition when this backend does not have the codec.
  virtual Result<std::unique_ptr<DeviceCodec>> make_codec(const CodecSpec& spec) = 0;
  virtual DeviceVectorOps& vector_ops() = 0;
  // Null for the CPU, where codec.h has all of it.
  virtual DeviceLowrankOps* lowrank_ops() = 0;
  virtual DeviceRobustOps& robust_ops() = 0;
};

Backend& cpu_backend();
Backend* cuda_backend();  // null in a build without CUDA; defined in cuda/

// Tests that link kernels/cuda/emulated make DeviceKind::kEmulated available.
void set_emulated_backend(Backend* backend);

// The backend of a device that can be used now.
Result<Backend*> backend_of(const Device& device);

}  // namespace fluvial::kernels

// The driver's library (libcuda.so) as far as a training process needs it, over the emulated devices' memory: for tests
// of what calls the driver. There are two devices. Signatures are cuda.h's.
//
// Asynchronous work is late here: a copy in a stream is made when somebody waits for it, and copies of other streams
// come after those of stream 0. So code that forgets to synchronize reads poison.
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "kernels/cuda/emulated/memory.h"

namespace fluvial::kernels::emulated {
namespace {

enum Answer : int {  // CUresult
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kInvalidDevice = 101,
  kInvalidContext = 201,
};

constexpr int kDevices = 2;
constexpr int kDeviceOrdinal = 9;                             // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
constexpr std::uint64_t kMemoryMax = std::uint64_t{1} << 40;  // of a device

struct Context {
  bool retained = false;
  std::map<const void*, std::vector<std::function<void()>>> streams;  // the work that is still to do in each
};

struct Driver {
  std::mutex mutex;
  bool initialized = false;
  Context contexts[kDevices];  // the primary ones
};

Driver& driver() {
  static Driver driver;
  return driver;
}

thread_local std::vector<Context*> current;  // of this thread, innermost last

bool is_device(int device) { return device >= 0 && device < kDevices; }

void* pointer(std::uint64_t address) { return reinterpret_cast<void*>(address); }

bool holds(std::uint64_t address, std::size_t bytes) {
  const auto found = find_memory(pointer(address));
  if (!found) return false;
  const std::uint64_t first = address - reinterpret_cast<std::uint64_t>(found->memory);
  return bytes <= found->bytes - first;
}

void finish(Context& context, const void* stream) {
  for (const auto& work : context.streams[stream]) work();
  context.streams.erase(stream);
}

void finish_all(Context& context) {
  while (!context.streams.empty()) finish(context, context.streams.begin()->first);
}

int in_stream(const void* stream, std::function<void()> work) {
  current.back()->streams[stream].push_back(std::move(work));
  return kSuccess;
}

// Calls `body` as a call of the driver that needs a context.
template <typename Body>
int in_context(Body body) {
  const std::lock_guard lock(driver().mutex);
  if (!driver().initialized) return kNotInitialized;
  return current.empty() ? kInvalidContext : body();
}

template <typename Body>
int of_device(int device, Body body) {
  const std::lock_guard lock(driver().mutex);
  if (!driver().initialized) return kNotInitialized;
  return is_device(device) ? body(driver().contexts[device]) : kInvalidDevice;
}

}  // namespace
}  // namespace fluvial::kernels::emulated

using namespace fluvial::kernels::emulated;  // NOLINT: everything below is of the driver's interface

#define FLUVIAL_DRIVER extern "C" int

FLUVIAL_DRIVER cuInit(unsigned) {
  const std::lock_guard lock(driver().mutex);
  driver().initialized = true;
  return kSuccess;
}

FLUVIAL_DRIVER cuGetErrorString(int answer, const char** text) {
  static const std::map<int, const char*> kTexts = {{kInvalidValue, "invalid argument"},
                                                    {kOutOfMemory, "out of memory"},
                                                    {kNotInitialized, "initialization error"},
                                                    {kInvalidDevice, "invalid device ordinal"},
                                                    {kInvalidContext, "invalid device context"}};
  const auto found = kTexts.find(answer);
  *text = found == kTexts.end() ? nullptr : found->second;
  return found == kTexts.end() ? kInvalidValue : kSuccess;
}

FLUVIAL_DRIVER cuDeviceGetCount(int* count) {
  *count = kDevices;
  return kSuccess;
}

FLUVIAL_DRIVER cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return is_device(ordinal) ? kSuccess : kInvalidDevice;
}

FLUVIAL_DRIVER cuDeviceGetUuid_v2(void* uuid, int device) {
  return of_device(device, [&](Context&) {
    const auto bytes = uuid_of(device);
    std::memcpy(uuid, bytes.data(), bytes.size());
    return kSuccess;
  });
}

FLUVIAL_DRIVER cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  return of_device(device, [&](Context& context) {
    *flags = 0;
    *active = context.retained ? 1 : 0;
    return kSuccess;
  });
}

FLUVIAL_DRIVER cuDevicePrimaryCtxRetain(void** context, int device) {
  return of_device(device, [&](Context& primary) {
    primary.retained = true;
    *context = &primary;
    return kSuccess;
  });
}

FLUVIAL_DRIVER cuCtxPushCurrent_v2(void* context) {
  current.push_back(static_cast<Context*>(context));
  return kSuccess;
}

FLUVIAL_DRIVER cuCtxPopCurrent_v2(void** context) {
  return in_context([&] {
    *context = current.back();
    current.pop_back();
    return kSuccess;
  });
}

FLUVIAL_DRIVER cuCtxSynchronize() {
  return in_context([&] {
    finish_all(*current.back());
    return kSuccess;
  });
}

FLUVIAL_DRIVER cuPointerGetAttribute(void* data, int attribute, std::uint64_t address) {
  return in_context([&] {
    const auto found = find_memory(pointer(address));
    if (!found || attribute != kDeviceOrdinal) return kInvalidValue;
    std::memcpy(data, &found->device_index, sizeof(found->device_index));
    return kSuccess;
  });
}

FLUVIAL_DRIVER cuMemAlloc_v2(std::uint64_t* address, std::size_t bytes) {
  return in_context([&] {
    if (bytes == 0) return kInvalidValue;
    if (bytes > kMemoryMax) return kOutOfMemory;
    const auto memory = allocate_memory(static_cast<int>(current.back() - driver().contexts), bytes);
    if (!memory.ok()) return kOutOfMemory;
    *address = reinterpret_cast<std::uint64_t>(*memory);
    return kSuccess;
  });
}

FLUVIAL_DRIVER cuMemFree_v2(std::uint64_t address) {
  return in_context([&] {
    const auto found = find_memory(pointer(address));
    if (!found || found->memory != pointer(address)) return kInvalidValue;
    finish_all(driver().contexts[found->device_index]);
    free_memory(found->memory);
    return kSuccess;
  });
}

FLUVIAL_DRIVER cuMemcpyDtoDAsync_v2(std::uint64_t to, std::uint64_t from, std::size_t bytes, void* stream) {
  return in_context([&]() -> int {
    if (!holds(to, bytes) || !holds(from, bytes)) return kInvalidValue;
    return in_stream(stream, [=] { std::memcpy(pointer(to), pointer(from), bytes); });
  });
}

FLUVIAL_DRIVER cuMemcpyHtoDAsync_v2(std::uint64_t to, const void* from, std::size_t bytes, void* stream) {
  return in_context([&]() -> int {
    if (!holds(to, bytes)) return kInvalidValue;
    const auto* const begin = static_cast<const std::byte*>(from);
    return in_stream(stream, [to, values = std::vector<std::byte>(begin, begin + bytes)] {
      std::memcpy(pointer(to), values.data(), values.size());
    });
  });
}

FLUVIAL_DRIVER cuMemcpyHtoD_v2(std::uint64_t to, const void* from, std::size_t bytes) {
  return in_context([&] {
    if (!holds(to, bytes)) return kInvalidValue;
    finish(*current.back(), nullptr);
    std::memcpy(pointer(to), from, bytes);
    return kSuccess;
  });
}

FLUVIAL_DRIVER cuMemcpyDtoH_v2(void* to, std::uint64_t from, std::size_t bytes) {
  return in_context([&] {
    if (!holds(from, bytes)) return kInvalidValue;
    finish(*current.back(), nullptr);
    std::memcpy(to, pointer(from), bytes);
    return kSuccess;
  });
}

FLUVIAL_DRIVER cuIpcGetMemHandle(void* handle, std::uint64_t address) {
  return in_context([&] {
    const auto found = find_memory(pointer(address));
    if (!found || found->memory != pointer(address)) return kInvalidValue;
    const auto exported = export_memory(found->memory);
    std::memcpy(handle, exported.bytes.data(), exported.bytes.size());
    return kSuccess;
  });
}

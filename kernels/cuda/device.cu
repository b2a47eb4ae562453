// Which CUDA devices there are, and their memory, streams and events.
#include <cuda.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

#include "kernels/cuda/backend.h"

namespace fluvial::kernels {
namespace cuda {
namespace {

// Clears a transient error, so that the next launch does not find it.
Status status_of(cudaError_t error) {
  if (error == cudaSuccess) return {};
  cudaGetLastError();
  const Code code = error == cudaErrorMemoryAllocation ? Code::kResourceExhausted : Code::kInternal;
  return Error{code, std::string("CUDA: ") + cudaGetErrorString(error)};
}

cudaStream_t stream_of(void* stream) { return static_cast<StreamState*>(stream)->stream; }
cudaEvent_t event_of(void* event) { return static_cast<cudaEvent_t>(event); }

Error no_device(int device_index, int count) {
  return {Code::kInvalidArgument, "CUDA: no device " + std::to_string(device_index) + " of " + std::to_string(count)};
}

// Whether the kernels were compiled for this device, or for one that its driver compiles them from.
Status check_kernels(int device_index) {
  int major = 0, minor = 0;
  FLUVIAL_TRY(status_of(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device_index)));
  FLUVIAL_TRY(status_of(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device_index)));
  constexpr int kBuilt[] = {__CUDA_ARCH_LIST__};  // 900 is 9.0
  const int least = *std::min_element(std::begin(kBuilt), std::end(kBuilt)) / 10;
  if (10 * major + minor >= least) return {};
  return Error{Code::kUnavailable, "CUDA: device " + std::to_string(device_index) + " has compute capability " +
                                       std::to_string(major) + "." + std::to_string(minor) + ", this was built for " +
                                       std::to_string(least / 10) + "." + std::to_string(least % 10) + " and newer"};
}

// Another process's memory, as it was opened.
struct Opened {
  int device = 0;
  void* memory = nullptr;
};

// A call on a thread that chose no device makes a context on device 0. That takes memory there even if another device
// is used, and fails if there is none left. So each thread first chooses a device; if any will do, the one that was
// chosen last.
std::atomic<int> last_chosen = 0;
thread_local bool has_chosen = false;

Status choose(int device_index) {
  FLUVIAL_TRY(status_of(cudaSetDevice(device_index)));
  last_chosen = device_index;
  has_chosen = true;
  return {};
}
Status choose_any() { return has_chosen ? Status() : choose(last_chosen); }

// For calls that release: an error concerns nobody, and the next launch must not find it.
template <typename Call>
void give_back(Call call) {
  if (choose_any().ok()) (void)status_of(call());
}

// A function of the driver, which the runtime has loaded, so that nothing links to it.
template <typename Function>
Result<Function> of_driver(const char* name) {
  static void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  void* const found = driver == nullptr ? nullptr : ::dlsym(driver, name);
  if (found == nullptr) return Error{Code::kInternal, std::string("CUDA: the driver has no ") + name};
  return reinterpret_cast<Function>(found);
}

// The bytes from this address to the end of its allocation, by the driver.
Result<std::size_t> bytes_from(void* memory) {
  FLUVIAL_ASSIGN(const auto range_of, of_driver<decltype(&cuMemGetAddressRange_v2)>("cuMemGetAddressRange_v2"));
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  const auto address = reinterpret_cast<CUdeviceptr>(memory);
  if (range_of(&base, &bytes, address) != CUDA_SUCCESS || address - base > bytes) {
    return Error{Code::kInternal, "CUDA: the driver does not know what it opened"};
  }
  return bytes - (address - base);
}

}  // namespace

Status check_launch(cudaError_t error) { return status_of(error); }

Status Runtime::check(int device_index) {
  FLUVIAL_ASSIGN(const int count, cuda_device_count());
  if (device_index < 0 || device_index >= count) return no_device(device_index, count);
  return check_kernels(device_index);
}

Result<void*> Runtime::make_stream(int device_index) {
  FLUVIAL_TRY(choose(device_index));
  auto state = std::make_unique<StreamState>();
  state->device = device_index;
  int multiprocessors = 1;
  FLUVIAL_TRY(status_of(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device_index)));
  state->multiprocessors = static_cast<unsigned>(multiprocessors);
  FLUVIAL_TRY(status_of(cudaStreamCreateWithFlags(&state->stream, cudaStreamNonBlocking)));
  return static_cast<void*>(state.release());
}

void Runtime::free_stream(void* stream) {
  const std::unique_ptr<StreamState> state(static_cast<StreamState*>(stream));
  give_back([&] { return cudaStreamDestroy(state->stream); });
}

Status Runtime::synchronize(void* stream) {
  FLUVIAL_TRY(choose_any());
  return status_of(cudaStreamSynchronize(stream_of(stream)));
}

void* Runtime::native_stream(void* stream) { return stream_of(stream); }

Result<void*> Runtime::make_event(int device_index) {
  FLUVIAL_TRY(choose(device_index));
  cudaEvent_t event = nullptr;
  FLUVIAL_TRY(status_of(cudaEventCreateWithFlags(&event, cudaEventDisableTiming)));
  return static_cast<void*>(event);
}

void Runtime::free_event(void* event) {
  give_back([&] { return cudaEventDestroy(event_of(event)); });
}
Status Runtime::record(void* event, void* stream) {
  FLUVIAL_TRY(choose_any());
  return status_of(cudaEventRecord(event_of(event), stream_of(stream)));
}
Status Runtime::wait(void* event) {
  FLUVIAL_TRY(choose_any());
  return status_of(cudaEventSynchronize(event_of(event)));
}
Status Runtime::hold(void* stream, void* event) {
  FLUVIAL_TRY(choose_any());
  return status_of(cudaStreamWaitEvent(stream_of(stream), event_of(event), 0));
}

Result<void*> Runtime::allocate(int device_index, std::size_t bytes) {
  FLUVIAL_TRY(choose(device_index));
  void* memory = nullptr;
  FLUVIAL_TRY(status_of(cudaMalloc(&memory, bytes)));
  return memory;
}

void Runtime::free(void* memory) {
  give_back([&] { return cudaFree(memory); });
}

Result<void*> Runtime::allocate_pinned(int device_index, std::size_t bytes) {
  FLUVIAL_TRY(choose(device_index));
  void* memory = nullptr;
  FLUVIAL_TRY(status_of(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped)));
  std::memset(memory, 0, bytes);
  return memory;
}

void Runtime::free_pinned(void* memory) {
  give_back([&] { return cudaFreeHost(memory); });
}

Status Runtime::copy(void* to, const void* from, std::size_t bytes, void* stream) {
  FLUVIAL_TRY(choose_any());
  return status_of(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(stream)));
}
void Runtime::reach(int device_index, int other_index) {
  int can = 0;
  const auto done = [](cudaError_t error) { return status_of(error).ok(); };  // it may be enabled, which is an error
  if (!done(cudaDeviceCanAccessPeer(&can, device_index, other_index)) || can == 0) return;
  if (choose(device_index).ok()) done(cudaDeviceEnablePeerAccess(other_index, 0));
}
Status Runtime::zero(void* to, std::size_t bytes, void* stream) {
  FLUVIAL_TRY(choose(static_cast<StreamState*>(stream)->device));
  return status_of(cudaMemsetAsync(to, 0, bytes, stream_of(stream)));
}

// The driver's UUID, because workers ask the driver, too: for a part of a GPU (MIG) the runtime's differs.
Result<DeviceUuid> Runtime::uuid(int device_index) {
  FLUVIAL_ASSIGN(const auto init, of_driver<decltype(&cuInit)>("cuInit"));
  FLUVIAL_ASSIGN(const auto device_of, of_driver<decltype(&cuDeviceGet)>("cuDeviceGet"));
  FLUVIAL_ASSIGN(const auto uuid_of, of_driver<decltype(&cuDeviceGetUuid_v2)>("cuDeviceGetUuid_v2"));
  CUdevice device = 0;
  CUuuid uuid{};
  if (init(0) != CUDA_SUCCESS || device_of(&device, device_index) != CUDA_SUCCESS ||
      uuid_of(&uuid, device) != CUDA_SUCCESS) {
    return Error{Code::kUnavailable, "CUDA: the driver has no UUID of device " + std::to_string(device_index)};
  }
  return std::bit_cast<DeviceUuid>(uuid);
}

Result<MemoryHandle> Runtime::export_memory(void* memory) {
  FLUVIAL_TRY(choose_any());
  cudaPointerAttributes attributes{};
  FLUVIAL_TRY(status_of(cudaPointerGetAttributes(&attributes, memory)));
  FLUVIAL_TRY(choose(attributes.device));
  cudaIpcMemHandle_t ipc{};
  if (const Status got = status_of(cudaIpcGetMemHandle(&ipc, memory)); !got.ok()) {
    return Error{Code::kFailedPrecondition, "memory that no other process can open: " + got.error().message};
  }
  return std::bit_cast<MemoryHandle>(ipc);
}

Result<OpenedMemory> Runtime::open_memory(int device_index, const MemoryHandle& handle) {
  FLUVIAL_TRY(choose(device_index));
  auto opened = std::make_unique<Opened>(Opened{.device = device_index});
  const Status status = status_of(
      cudaIpcOpenMemHandle(&opened->memory, std::bit_cast<cudaIpcMemHandle_t>(handle), cudaIpcMemLazyEnablePeerAccess));
  if (!status.ok()) {
    return Error{Code::kInvalidArgument,
                 "memory of another process cannot be opened: " + status.error().message +
                     " (both processes need this GPU, and containers one IPC and one PID namespace)"};
  }
  const Result<std::size_t> bytes = bytes_from(opened->memory);
  if (!bytes.ok()) {
    close_memory(opened.release());
    return bytes.error();
  }
  const DeviceSpan<const std::byte> span(static_cast<const std::byte*>(opened->memory), *bytes);
  return OpenedMemory{opened.release(), span};
}

void Runtime::close_memory(void* handle) {
  const std::unique_ptr<Opened> opened(static_cast<Opened*>(handle));
  if (choose(opened->device).ok()) (void)status_of(cudaIpcCloseMemHandle(opened->memory));
}

}  // namespace cuda

namespace {

Error unavailable(cudaError_t error) {
  cudaGetLastError();
  return {Code::kUnavailable, std::string("CUDA: ") + cudaGetErrorString(error)};
}

}  // namespace

Backend* cuda_backend() { return &cuda::backend(); }
bool cuda_built() { return true; }

Result<int> cuda_device_count() {
  int count = 0;  // left untouched on an error
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) return unavailable(error);
  if (count == 0) return Error{Code::kUnavailable, "CUDA: the driver shows no device"};
  return count;
}

Result<CudaDevice> cuda_device(int device_index) {
  const Result<int> count = cuda_device_count();
  if (!count.ok()) return count.error();
  if (device_index < 0 || device_index >= *count) return cuda::no_device(device_index, *count);
  cudaDeviceProp properties{};
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, device_index); error != cudaSuccess) {
    return unavailable(error);
  }
  int mode = cudaComputeModeDefault;
  if (const cudaError_t error = cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, device_index);
      error != cudaSuccess) {
    return unavailable(error);
  }
  return CudaDevice{properties.name, properties.major, properties.minor, properties.totalGlobalMem,
                    mode != cudaComputeModeDefault};
}

}  // namespace fluvial::kernels

// Which CUDA devices there are, and their memory, streams and events.
#include <cstring>

#include "kernels/cuda/backend.h"

namespace fluvial::kernels {
namespace cuda {
namespace {

Status status_of(cudaError_t error) {
  if (error == cudaSuccess) return {};
  const Code code = error == cudaErrorMemoryAllocation ? Code::kResourceExhausted : Code::kInternal;
  return Error{code, std::string("CUDA: ") + cudaGetErrorString(error)};
}

cudaStream_t stream_of(void* stream) { return static_cast<StreamState*>(stream)->stream; }
cudaEvent_t event_of(void* event) { return static_cast<cudaEvent_t>(event); }

}  // namespace

Status check_launch(cudaError_t error) { return status_of(error); }

Status Runtime::check(int device_index) {
  FLUVIAL_TRY(cuda_device(device_index));
  return {};
}

Result<void*> Runtime::make_stream(int device_index) {
  FLUVIAL_TRY(status_of(cudaSetDevice(device_index)));
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
  cudaStreamDestroy(state->stream);
}

Status Runtime::synchronize(void* stream) { return status_of(cudaStreamSynchronize(stream_of(stream))); }

Result<void*> Runtime::make_event(int device_index) {
  FLUVIAL_TRY(status_of(cudaSetDevice(device_index)));
  cudaEvent_t event = nullptr;
  FLUVIAL_TRY(status_of(cudaEventCreateWithFlags(&event, cudaEventDisableTiming)));
  return static_cast<void*>(event);
}

void Runtime::free_event(void* event) { cudaEventDestroy(event_of(event)); }
Status Runtime::record(void* event, void* stream) {
  return status_of(cudaEventRecord(event_of(event), stream_of(stream)));
}
Status Runtime::wait(void* event) { return status_of(cudaEventSynchronize(event_of(event))); }
Status Runtime::hold(void* stream, void* event) {
  return status_of(cudaStreamWaitEvent(stream_of(stream), event_of(event), 0));
}

Result<void*> Runtime::allocate(int device_index, std::size_t bytes) {
  FLUVIAL_TRY(status_of(cudaSetDevice(device_index)));
  void* memory = nullptr;
  FLUVIAL_TRY(status_of(cudaMalloc(&memory, bytes)));
  return memory;
}

void Runtime::free(void* memory) { cudaFree(memory); }

Result<void*> Runtime::allocate_pinned(int device_index, std::size_t bytes) {
  FLUVIAL_TRY(status_of(cudaSetDevice(device_index)));
  void* memory = nullptr;
  FLUVIAL_TRY(status_of(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped)));
  std::memset(memory, 0, bytes);
  return memory;
}

void Runtime::free_pinned(void* memory) { cudaFreeHost(memory); }

Status Runtime::copy(void* to, const void* from, std::size_t bytes, void* stream) {
  return status_of(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(stream)));
}
Status Runtime::zero(void* to, std::size_t bytes, void* stream) {
  return status_of(cudaMemsetAsync(to, 0, bytes, stream_of(stream)));
}

}  // namespace cuda

namespace {

Error unavailable(cudaError_t error) { return {Code::kUnavailable, std::string("CUDA: ") + cudaGetErrorString(error)}; }

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
  if (device_index < 0 || device_index >= *count) {
    return Error{Code::kInvalidArgument,
                 "CUDA: no device " + std::to_string(device_index) + " of " + std::to_string(*count)};
  }
  cudaDeviceProp properties{};
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, device_index); error != cudaSuccess) {
    return unavailable(error);
  }
  return CudaDevice{properties.name, properties.major, properties.minor, properties.totalGlobalMem};
}

}  // namespace fluvial::kernels

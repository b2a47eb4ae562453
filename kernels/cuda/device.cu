#include <cuda_runtime_api.h>

#include "kernels/device.h"

namespace fluvial::kernels {
namespace {

Error unavailable(cudaError_t error) { return {Code::kUnavailable, std::string("CUDA: ") + cudaGetErrorString(error)}; }

}  // namespace

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

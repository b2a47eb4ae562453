// What accelerators this build can use and this machine has. The same binary starts where there is none.
#pragma once

#include <string>

#include "core/base/result.h"

namespace fluvial::kernels {

// True when the CUDA backend was compiled in.
bool cuda_built();

// How many CUDA devices the driver shows. kUnavailable, with the reason, when there is no driver or no device, or when
// this was built without CUDA.
Result<int> cuda_device_count();

struct CudaDevice {
  std::string name;
  int compute_major = 0;
  int compute_minor = 0;
  std::size_t memory_bytes = 0;
};

// kInvalidArgument when there is no such device; kUnavailable as above.
Result<CudaDevice> cuda_device(int device_index);

}  // namespace fluvial::kernels

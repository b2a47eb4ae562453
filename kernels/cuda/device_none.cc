// Stands in for device.cu in a build without CUDA.
#include "kernels/device_backend.h"

namespace fluvial::kernels {
namespace {

Error not_built() { return {Code::kUnavailable, "built without CUDA"}; }

}  // namespace

Backend* cuda_backend() { return nullptr; }
bool cuda_built() { return false; }
Result<int> cuda_device_count() { return not_built(); }
Result<CudaDevice> cuda_device(int) { return not_built(); }

}  // namespace fluvial::kernels

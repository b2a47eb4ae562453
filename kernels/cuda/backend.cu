#include "kernels/cuda/backend.h"

namespace fluvial::kernels::FLUVIAL_GPU {
namespace {

class GpuBackend final : public Runtime {
 public:
  Result<std::unique_ptr<DeviceCodec>> make_codec(const CodecSpec& spec) override {
    if (spec.zstd_level != 0) return Error{Code::kFailedPrecondition, "the zstd stage runs on the CPU alone"};
    switch (spec.kind) {
      case CodecKind::kFp32:
      case CodecKind::kFp16:
      case CodecKind::kBf16: return make_float_codec(spec);
      case CodecKind::kInt8:
      case CodecKind::kInt4: return make_int_codec(spec);
      case CodecKind::kSign: return make_sign_codec(spec);
      case CodecKind::kQsgd: return make_qsgd_codec(spec);
      case CodecKind::kTernGrad: return make_terngrad_codec(spec);
      case CodecKind::kTopk:
      case CodecKind::kDgc: return make_topk_codec(spec);
      case CodecKind::kRandk: return make_randk_codec(spec);
      case CodecKind::kRing: return make_ring_codec(spec);
      case CodecKind::kOnebitAdam:
        return Error{Code::kFailedPrecondition, "onebit_adam is encoded on the CPU, where what it was lent is kept"};
      case CodecKind::kPowerSgd: break;
    }
    return Error{Code::kFailedPrecondition, "powersgd has two passes: device_powersgd.h"};
  }
  DeviceVectorOps& vector_ops() override { return FLUVIAL_GPU::vector_ops(); }
  DeviceLowrankOps* lowrank_ops() override { return &FLUVIAL_GPU::lowrank_ops(); }
  DeviceRobustOps& robust_ops() override { return FLUVIAL_GPU::robust_ops(); }
};

}  // namespace

Backend& backend() {
  static GpuBackend backend;
  return backend;
}

}  // namespace fluvial::kernels::FLUVIAL_GPU

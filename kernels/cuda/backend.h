// The parts of the backend, each in its own source. Internal.
#pragma once

#include <memory>

#include "kernels/cuda/gpu.h"
#include "kernels/device_backend.h"

namespace fluvial::kernels::FLUVIAL_GPU {

// Memory, streams and events: the CUDA runtime's, or the emulator's.
class Runtime : public Backend {
 public:
  Status check(int device_index) override;
  Result<void*> make_stream(int device_index) override;
  void free_stream(void* stream) override;
  Status synchronize(void* stream) override;
  void* native_stream(void* stream) override;
  Result<void*> make_event(int device_index) override;
  void free_event(void* event) override;
  Status record(void* event, void* stream) override;
  Status wait(void* event) override;
  Status hold(void* stream, void* event) override;
  Result<void*> allocate(int device_index, std::size_t bytes) override;
  void free(void* memory) override;
  Result<void*> allocate_pinned(int device_index, std::size_t bytes) override;
  void free_pinned(void* memory) override;
  Status copy(void* to, const void* from, std::size_t bytes, void* stream) override;
  void reach(int device_index, int other_index) override;
  Status zero(void* to, std::size_t bytes, void* stream) override;
  Result<DeviceUuid> uuid(int device_index) override;
  Result<MemoryHandle> export_memory(void* memory) override;
  Result<OpenedMemory> open_memory(int device_index, const MemoryHandle& handle) override;
  void close_memory(void* handle) override;
};

Backend& backend();
DeviceVectorOps& vector_ops();
DeviceLowrankOps& lowrank_ops();
DeviceRobustOps& robust_ops();

// The vector operations of the adaptive optimizers and of delayed Nesterov.
Status launch_adaptive(AdaptiveRule rule, const AdaptiveOptions& options, DeviceSpan<const float> mean,
                       DeviceSpan<float> moment, DeviceSpan<float> variance, DeviceSpan<float> model, Stream& stream);
Status launch_delayed_nesterov(const DelayedNesterovOptions& options, DeviceSpan<const float> mean,
                               DeviceSpan<float> moment, DeviceSpan<float> buffer, DeviceSpan<float> model,
                               Stream& stream);

// The vector operations of layer-wise rates.
Status launch_squares_of(DeviceSpan<const float> values, DeviceSpan<double> lanes, DeviceSpan<std::byte> workspace,
                         Stream& stream);
Status launch_lars(const LarsRates& rates, DeviceSpan<const float> mean, DeviceSpan<float> moment,
                   DeviceSpan<float> model, Stream& stream);
Status launch_lamb_squares(const ops::LambFactors& factors, DeviceSpan<const float> mean,
                           DeviceSpan<const float> moment, DeviceSpan<const float> variance,
                           DeviceSpan<const float> model, DeviceSpan<double> lanes, DeviceSpan<std::byte> workspace,
                           Stream& stream);
Status launch_lamb(const ops::LambFactors& factors, DeviceSpan<const float> mean, DeviceSpan<float> moment,
                   DeviceSpan<float> variance, DeviceSpan<float> model, Stream& stream);

using MadeCodec = Result<std::unique_ptr<DeviceCodec>>;
MadeCodec make_float_codec(const CodecSpec& spec);  // fp32, fp16, bf16
MadeCodec make_int_codec(const CodecSpec& spec);    // int8, int4
MadeCodec make_sign_codec(const CodecSpec& spec);
MadeCodec make_topk_codec(const CodecSpec& spec);  // topk, dgc
MadeCodec make_randk_codec(const CodecSpec& spec);
MadeCodec make_qsgd_codec(const CodecSpec& spec);
MadeCodec make_terngrad_codec(const CodecSpec& spec);
MadeCodec make_ring_codec(const CodecSpec& spec);

}  // namespace fluvial::kernels::FLUVIAL_GPU

// The pieces that make up the backend, each in its own source. Internal.
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
  Status zero(void* to, std::size_t bytes, void* stream) override;
};

Backend& backend();
DeviceVectorOps& vector_ops();

// Of the vector operations, those of the adaptive optimizers.
Status launch_adaptive(AdaptiveRule rule, const AdaptiveOptions& options, DeviceSpan<const float> mean,
                       DeviceSpan<float> moment, DeviceSpan<float> variance, DeviceSpan<float> model, Stream& stream);

using MadeCodec = Result<std::unique_ptr<DeviceCodec>>;
MadeCodec make_float_codec(const CodecSpec& spec);  // fp32, fp16, bf16
MadeCodec make_int_codec(const CodecSpec& spec);    // int8, int4
MadeCodec make_sign_codec(const CodecSpec& spec);
MadeCodec make_topk_codec(const CodecSpec& spec);
MadeCodec make_randk_codec(const CodecSpec& spec);
MadeCodec make_quantised_codec(const CodecSpec& spec);  // qsgd, terngrad

}  // namespace fluvial::kernels::FLUVIAL_GPU

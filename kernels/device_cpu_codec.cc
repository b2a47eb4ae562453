// The CPU's codecs behind the interface of the devices.
#include "core/base/format.h"
#include "kernels/device_cpu.h"

namespace fluvial::kernels {
namespace {

class CpuDeviceCodec final : public DeviceCodec {
 public:
  explicit CpuDeviceCodec(std::unique_ptr<Codec> codec) : codec_(std::move(codec)) {}

  const CodecSpec& spec() const override { return codec_->spec(); }
  std::size_t encoded_bytes_max(std::size_t value_count) const override {
    return codec_->encoded_bytes_max(value_count);
  }
  std::size_t workspace_bytes(const VectorSchema& schema) const override { return codec_->workspace_bytes(schema); }
  std::size_t state_bytes(const VectorSchema& schema) const override { return codec_->state_bytes(schema); }

  Result<DevicePlan> prepare(const VectorSchema& schema, DeviceSpan<const float> vector, const StreamKey& key,
                             DeviceSpan<std::byte> state, DeviceSpan<std::byte> workspace, Stream&) const override {
    FLUVIAL_ASSIGN(const EncodePlan plan, codec_->prepare(schema, host(vector), key, {}, host(state), host(workspace)));
    return DevicePlan{.layout = schema.layout, .key = key, .values = vector, .workspace = workspace, .host = plan};
  }
  Status decode_chunk(DeviceSpan<const std::byte> bytes, DeviceSpan<float> out, Stream&) const override {
    return codec_->decode_chunk(host(bytes), host(out));
  }
  Status decode_add_chunk(DeviceSpan<const std::byte> bytes, float weight, DeviceSpan<float> sum,
                          Stream&) const override {
    return codec_->decode_add_chunk(host(bytes), weight, host(sum));
  }

 protected:
  Status fold_state(const VectorSchema& schema, DeviceSpan<const float> update, DeviceSpan<const float> residual,
                    DeviceSpan<std::byte> state, DeviceSpan<std::byte>, DeviceSpan<float> out, Stream&) const override {
    return codec_->fold(schema, host(update), host(residual), host(state), host(out));
  }
  Status settle_state(const ChunkLayout& layout, std::size_t chunk_index, DeviceSpan<const std::byte> bytes,
                      DeviceSpan<std::byte> state, Stream&) const override {
    return codec_->settle_chunk({.layout = layout, .tensors = {}}, chunk_index, host(bytes), host(state));
  }
  Status encode(const DevicePlan& plan, std::size_t chunk_index, DeviceSpan<const float> chunk,
                DeviceSpan<std::byte> out, DeviceSpan<float> residual, ChunkOutcome* outcome, Stream&) const override {
    const Result<std::size_t> bytes =
        residual.empty()
            ? codec_->encode_chunk(plan.host, chunk_index, host(chunk), host(out))
            : codec_->encode_residual_chunk(plan.host, chunk_index, host(chunk), host(out), host(residual));
    if (bytes.ok()) {
      outcome->bytes = *bytes;
      return {};
    }
    cpu_outcome(bytes.error(), host(chunk), plan.layout.first_value(chunk_index), outcome);
    return outcome->malformed != 0 ? Status(bytes.error()) : Status();
  }
  Status screen(DeviceSpan<const std::byte> bytes, std::size_t value_count, std::uint64_t first_value,
                DeviceSpan<std::byte>, ChunkOutcome* outcome, Stream&) const override {
    const Result<ScreenReport> report = codec_->screen_chunk(host(bytes), value_count, first_value);
    cpu_outcome(report, {}, first_value, outcome);
    return {};
  }
  Status accumulate(DeviceSpan<const std::byte> bytes, std::uint32_t weight, int scale_bits,
                    DeviceSpan<std::int64_t> sum, DeviceSpan<std::byte>, ChunkOutcome* outcome,
                    Stream&) const override {
    if (!screened(*outcome).ok()) return {};
    const Status added = codec_->decode_accumulate_chunk(host(bytes), weight, scale_bits, host(sum));
    if (!added.ok()) outcome->malformed = ChunkOutcome::kBeyondScale;
    return {};
  }
  Status residual(DeviceSpan<const float> values, DeviceSpan<const std::byte> bytes, DeviceSpan<float> out,
                  Stream&) const override {
    return codec_->residual_chunk(host(values), host(bytes), host(out));
  }

 private:
  std::unique_ptr<Codec> codec_;
};

}  // namespace

Result<std::unique_ptr<DeviceCodec>> make_cpu_device_codec(const CodecSpec& spec) {
  FLUVIAL_ASSIGN(std::unique_ptr<Codec> codec, make_codec(spec));
  if (codec->hands_down()) {
    return Error{Code::kFailedPrecondition,
                 format_text("{} begins with what rounds hand down: devices have codecs that do not", to_string(spec))};
  }
  return std::unique_ptr<DeviceCodec>(std::make_unique<CpuDeviceCodec>(std::move(codec)));
}

}  // namespace fluvial::kernels

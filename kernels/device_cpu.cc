// The CPU as a device: host memory, and everything done when the call returns.
#include "kernels/device_cpu.h"

#include <array>
#include <cstring>
#include <new>

#include "core/base/format.h"
#include "kernels/cpu/optimizer_loops.h"
#include "kernels/device_backend.h"
#include "kernels/fixed.h"
#include "kernels/ops/bits.h"
#include "kernels/pieces.h"
#include "kernels/vector.h"

namespace fluvial::kernels {
namespace {

constexpr std::align_val_t kMemoryAlignment{256};

class CpuVectorOps final : public DeviceVectorOps {
 public:
  Status reduce(std::span<const DeviceSpan<const float>> buffers, DeviceSpan<float> out, Stream&) override {
    return reduce_sum(HostSpans(buffers).spans(), SumIn::kFp32, host(out));
  }
  Status reduce_mean(std::span<const DeviceSpan<const float>> buffers, DeviceSpan<float> out, Stream&) override {
    return kernels::reduce_mean(HostSpans(buffers).spans(), host(out));
  }
  Status weighted_sum(std::span<const DeviceSpan<const float>> vectors, std::span<const double> coefficients,
                      double divisor, DeviceSpan<float> out, Stream&) override {
    kernels::weighted_sum(HostSpans(vectors).spans(), coefficients, divisor, host(out));
    return {};
  }
  Status screen(DeviceSpan<const float> values, std::uint64_t first_value, DeviceSpan<std::byte>, ChunkOutcome* outcome,
                Stream&) override {
    const Result<ScreenReport> report = kernels::screen(host(values), first_value);
    cpu_outcome(report, host(values), first_value, outcome);
    return {};
  }
  Status add_scaled(DeviceSpan<const float> x, float weight, DeviceSpan<float> sum, Stream&) override {
    cpu::loops().add_scaled(x.data(), x.size(), weight, sum.data());
    return {};
  }
  Status add_sums(DeviceSpan<const std::int64_t> add, DeviceSpan<std::int64_t> sum, Stream&) override {
    cpu::loops().add(add.data(), add.size(), sum.data());
    return {};
  }
  Status mean_of_sums(DeviceSpan<const std::int64_t> sum, double inverse_scale, double total_weight,
                      DeviceSpan<float> out, Stream&) override {
    cpu::loops().mean(sum.data(), sum.size(), inverse_scale, total_weight, out.data());
    return {};
  }
  Status pseudo_gradient(DeviceSpan<const float> base, DeviceSpan<const float> local, DeviceSpan<const float> residual,
                         DeviceSpan<float> out, Stream&) override {
    kernels::pseudo_gradient(host(base), host(local), host(residual), host(out));
    return {};
  }
  Status sgd(double lr, DeviceSpan<const float> mean, DeviceSpan<float> model, Stream&) override {
    apply_sgd(lr, host(mean), host(model));
    return {};
  }
  Status momentum(double lr, double momentum, DeviceSpan<const float> mean, DeviceSpan<float> moment,
                  DeviceSpan<float> model, Stream&) override {
    apply_momentum(lr, momentum, host(mean), host(moment), host(model));
    return {};
  }
  Status adaptive(AdaptiveRule rule, const AdaptiveOptions& options, DeviceSpan<const float> mean,
                  DeviceSpan<float> moment, DeviceSpan<float> variance, DeviceSpan<float> model, Stream&) override {
    apply_adaptive(rule, options, host(mean), host(moment), host(variance), host(model));
    return {};
  }
  Status nesterov(double lr, double momentum, DeviceSpan<const float> mean, DeviceSpan<float> moment,
                  DeviceSpan<float> model, Stream&) override {
    apply_nesterov(lr, momentum, host(mean), host(moment), host(model));
    return {};
  }
  Status delayed_nesterov(const DelayedNesterovOptions& options, DeviceSpan<const float> mean, DeviceSpan<float> moment,
                          DeviceSpan<float> buffer, DeviceSpan<float> model, Stream&) override {
    apply_delayed_nesterov(options, host(mean), host(moment), host(buffer), host(model));
    return {};
  }
  Status fold(DeviceSpan<const float> update, DeviceSpan<const float> residual, DeviceSpan<float> out,
              Stream&) override {
    cpu::loops().fold(update.data(), residual.data(), out.size(), out.data());
    return {};
  }
  Status add_squares(DeviceSpan<const float> values, DeviceSpan<double> lanes, DeviceSpan<std::byte>,
                     Stream&) override {
    cpu::loops().screen(values.data(), values.size(), lanes.data());
    return {};
  }
  Status lars(const LarsRates& rates, DeviceSpan<const float> mean, DeviceSpan<float> moment, DeviceSpan<float> model,
              Stream&) override {
    apply_lars(rates.momentum, rates.rate, rates.weight_decay, host(mean), host(moment), host(model));
    return {};
  }
  Status add_lamb_squares(const ops::LambFactors& factors, DeviceSpan<const float> mean, DeviceSpan<const float> moment,
                          DeviceSpan<const float> variance, DeviceSpan<const float> model, DeviceSpan<double> lanes,
                          DeviceSpan<std::byte>, Stream&) override {
    cpu::optimizer_loops(cpu::best_target())
        .lamb_direction_squares(factors, mean.data(), moment.data(), variance.data(), model.data(), mean.size(),
                                lanes.data());
    return {};
  }
  Status lamb(const ops::LambFactors& factors, DeviceSpan<const float> mean, DeviceSpan<float> moment,
              DeviceSpan<float> variance, DeviceSpan<float> model, Stream&) override {
    cpu::optimizer_loops(cpu::best_target())
        .lamb(factors, mean.data(), mean.size(), moment.data(), variance.data(), model.data());
    return {};
  }
};

class CpuBackend final : public Backend {
 public:
  Status check(int device_index) override {
    if (device_index == 0) return {};
    return Error{Code::kInvalidArgument, format_text("no device {}: cpu is one", device_index)};
  }
  Result<void*> make_stream(int) override { return static_cast<void*>(this); }  // a name, no more
  void free_stream(void*) override {}
  Status synchronize(void*) override { return {}; }
  void* native_stream(void* stream) override { return stream; }
  Result<void*> make_event(int) override { return static_cast<void*>(this); }
  void free_event(void*) override {}
  Status record(void*, void*) override { return {}; }
  Status wait(void*) override { return {}; }
  Status hold(void*, void*) override { return {}; }
  Result<void*> allocate(int, std::size_t bytes) override {
    void* const memory = ::operator new(bytes, kMemoryAlignment, std::nothrow);
    if (memory == nullptr) return Error{Code::kResourceExhausted, format_text("no {} bytes of host memory", bytes)};
    return memory;
  }
  void free(void* memory) override { ::operator delete(memory, kMemoryAlignment); }
  Result<void*> allocate_pinned(int device_index, std::size_t bytes) override {
    FLUVIAL_ASSIGN(void* const memory, allocate(device_index, bytes));
    std::memset(memory, 0, bytes);
    return memory;
  }
  void free_pinned(void* memory) override { free(memory); }
  Status copy(void* to, const void* from, std::size_t bytes, void*) override {
    std::memmove(to, from, bytes);
    return {};
  }
  void reach(int, int) override {}
  Status zero(void* to, std::size_t bytes, void*) override {
    std::memset(to, 0, bytes);
    return {};
  }
  Result<DeviceUuid> uuid(int) override { return shares_nothing(); }
  Result<MemoryHandle> export_memory(void*) override { return shares_nothing(); }
  Result<OpenedMemory> open_memory(int, const MemoryHandle&) override { return shares_nothing(); }
  void close_memory(void*) override {}
  Result<std::unique_ptr<DeviceCodec>> make_codec(const CodecSpec& spec) override {
    return make_cpu_device_codec(spec);
  }
  DeviceVectorOps& vector_ops() override { return vector_ops_; }
  DeviceLowrankOps* lowrank_ops() override { return nullptr; }
  DeviceRobustOps& robust_ops() override { return cpu_robust_ops(); }

 private:
  static Error shares_nothing() {
    return {Code::kFailedPrecondition,
            "cpu: no device memory that processes could share; host memory has its own ways"};
  }
  CpuVectorOps vector_ops_;
};

}  // namespace

void cpu_outcome(const Result<ScreenReport>& report, std::span<const float> values, std::uint64_t first_value,
                 ChunkOutcome* outcome) {
  if (report.ok()) {
    outcome->max_bits = ops::float_bits(report->max_abs);
    outcome->norm_squared = report->norm_squared;
    return;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (ops::magnitude_bits(values[i]) < ops::kInfinityBits) continue;
    outcome->not_finite_at = first_value + i;
    return;
  }
  outcome->malformed = 1;
}

Backend& cpu_backend() {
  static CpuBackend backend;
  return backend;
}

}  // namespace fluvial::kernels

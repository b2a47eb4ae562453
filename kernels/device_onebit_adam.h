// onebit_adam.h on a device: the same arithmetic on device memory, in a stream, to the CPU's bits. States are vectors
// on the device; save() and load() take them from and to the host.
//
// step()'s input must be screened: device_screen(mean, ...), and checked_mean() once the stream was synchronised; in
// two-sided compression so must the residual. For other values the result is undefined, but no other memory is touched.
#pragma once

#include <memory>

#include "kernels/device_codec.h"
#include "kernels/onebit_adam.h"

namespace fluvial::kernels {

struct DeviceOnebitAdamServer {
  std::uint64_t round = 0;
  DeviceSpan<float> momentum;
  DeviceSpan<float> variance;
  DeviceSpan<float> residual;  // two-sided; otherwise empty
};

// Immutable and thread safe; vectors of one call have equal lengths (checked).
class DeviceOnebitAdam {
 public:
  // Errors as OnebitAdam::make and make_device_codec.
  static Result<DeviceOnebitAdam> make(const Device& device, const OnebitAdamOptions& options);

  const OnebitAdamOptions& options() const { return options_; }
  bool warming_up(std::uint64_t round) const { return round < options_.freeze_round; }
  const DeviceCodec& upward(std::uint64_t round) const { return warming_up(round) ? *fp32_ : *sign_; }
  const DeviceCodec& downward(std::uint64_t round) const {
    return warming_up(round) || !options_.two_sided ? *fp32_ : *sign_;
  }

  // `out` may be any of the others.
  Status fold(std::uint64_t round, DeviceSpan<const float> gradient, DeviceSpan<const float> momentum,
              DeviceSpan<const float> residual, DeviceSpan<float> out, Stream& stream) const;

  // kInvalidArgument when a screened vector must not go into step().
  static Status checked_mean(const ChunkOutcome& outcome);
  static Status checked_residual(const ChunkOutcome& outcome);

  // A chunk of round `state.round`. Compressing both ways, `out` receives the encoded momentum, and encoded_bytes() of
  // downward() its size from the outcome; otherwise both stay as they are, and may be empty and null.
  Status step(const DeviceOnebitAdamServer& state, double lr, DeviceSpan<const float> mean, DeviceSpan<float> model,
              DeviceSpan<std::byte> out, ChunkOutcome* outcome, Stream& stream) const;

  Status apply(double lr, DeviceSpan<const float> momentum, DeviceSpan<const float> variance, DeviceSpan<float> model,
               Stream& stream) const;

 private:
  explicit DeviceOnebitAdam(const OnebitAdamOptions& options) : options_(options) {}
  Status step_two_sided(const DeviceOnebitAdamServer& state, double lr, DeviceSpan<const float> mean,
                        DeviceSpan<float> model, DeviceSpan<std::byte> out, ChunkOutcome* outcome,
                        Stream& stream) const;

  OnebitAdamOptions options_;
  std::unique_ptr<DeviceCodec> fp32_;
  std::unique_ptr<DeviceCodec> sign_;
};

}  // namespace fluvial::kernels

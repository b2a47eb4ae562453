// PowerSGD (codecs/powersgd.h) on a device: two passes, a state, and the CPU's bits in all of them. What travels in a
// pass is fp32: plan.sent.values, in chunks of plan.sent.layout, which fp32() encodes.
//
//   plan = prepare(schema, vector, key, 0, {}, state, workspace, outcome, stream);  ... the mean comes back down ...
//   plan = prepare(schema, vector, key, 1, mean, state, workspace, outcome, stream);
//   leave_chunk(plan, i, values, out, stream);                      the residual, once the contribution counted
//   settle(schema, key, mean of pass 1, state, workspace, outcome, stream);
//
// Vectors and means are finite (device_screen). Everything is asynchronous: schemas, states and workspaces must live.
// Determinism: the same bits on every device and in every run, those of codec.h's PowerSGD. The price: no more than 16
// additions of a sum over a column run side by side. The columns of all matrices do run side by side, so rank r takes
// the time of 2 r such sums, one after the other.
#pragma once

#include <memory>

#include "kernels/device_codec.h"

namespace fluvial::kernels {

struct DeviceLowrankPlan {
  DevicePlan sent;
  VectorSchema schema;
  std::uint32_t pass = 0;
  DeviceSpan<const float> p;  // pass 1, expand: orthonormal
  DeviceSpan<const float> q;  // pass 1: the site's own; expand: the mean. Then the values that are not cut
  EncodePlan host_plan;       // on the CPU: all of it
  ExpandPlan host_expand;
};

// Immutable and thread safe. Means and lengths are checked; kInvalidArgument says what does not fit.
class DevicePowerSgd {
 public:
  virtual ~DevicePowerSgd() = default;
  virtual ChunkLayout pass_layout(const VectorSchema& schema, std::uint32_t pass) const = 0;
  virtual std::size_t workspace_bytes(const VectorSchema& schema) const = 0;  // aligned to 256 bytes
  virtual std::size_t state_bytes(const VectorSchema& schema) const = 0;      // the CPU's state, aligned to 8 bytes
  virtual const DeviceCodec& fp32() const = 0;

  // Computes all that the pass sends. accepted() says, once the stream was synchronised, whether it may be sent.
  virtual Result<DeviceLowrankPlan> prepare(const VectorSchema& schema, DeviceSpan<const float> vector,
                                            const StreamKey& key, std::uint32_t pass, DeviceSpan<const float> mean,
                                            DeviceSpan<std::byte> state, DeviceSpan<std::byte> workspace,
                                            ChunkOutcome* outcome, Stream& stream) const = 0;
  // kInvalidArgument when the state is of another run, rank or model (it is then as it was), or a product left fp32.
  static Status accepted(const ChunkOutcome& outcome);

  // By chunks of the model; `out` may be `values`. The plan is that of pass 1.
  virtual Status leave_chunk(const DeviceLowrankPlan& plan, std::size_t chunk_index, DeviceSpan<const float> values,
                             DeviceSpan<float> out, Stream& stream) const = 0;

  // The means of both passes to the mean update, by chunks of the model.
  virtual Result<DeviceLowrankPlan> prepare_expand(const VectorSchema& schema, DeviceSpan<const float> mean_p,
                                                   DeviceSpan<const float> mean_q, DeviceSpan<std::byte> workspace,
                                                   Stream& stream) const = 0;
  virtual Status expand_chunk(const DeviceLowrankPlan& plan, std::size_t chunk_index, DeviceSpan<float> out,
                              Stream& stream) const = 0;

  // The state after a round; accepted() as above.
  virtual Status settle(const VectorSchema& schema, const StreamKey& key, DeviceSpan<const float> mean_q,
                        DeviceSpan<std::byte> state, DeviceSpan<std::byte> workspace, ChunkOutcome* outcome,
                        Stream& stream) const = 0;
};

// Errors as make_device_codec; the spec is powersgd's.
Result<std::unique_ptr<DevicePowerSgd>> make_device_powersgd(const Device& device, const CodecSpec& spec);

}  // namespace fluvial::kernels

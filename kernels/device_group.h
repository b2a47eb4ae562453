// Devices of one machine that add up vectors on each of them: over NCCL if it is installed, else by copies between the
// devices. NCCL is loaded by name when there are two devices or more; nothing needs it to build or to start.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/device.h"

namespace fluvial::kernels {

inline constexpr const char* kNcclLibrary = "libnccl.so.2";

// How the vectors come together. Internal.
class GroupTransport {
 public:
  virtual ~GroupTransport() = default;
  virtual const std::string& name() const = 0;
  virtual Status reduce(std::span<const DeviceSpan<const float>> from, DeviceSpan<float> out,
                        std::span<Stream> streams) = 0;
};

// Used by one thread at a time. Destruction gives up work that is still under way: synchronise the streams first.
class DeviceGroup {
 public:
  // Up to 64 different devices of one kind; the first is the root (kInvalidArgument). NCCL that is not installed, too
  // old or unable to work here (one sum is tried) is no error: transport() says so. Emulated devices take a library
  // that a test made.
  static Result<DeviceGroup> make(std::vector<Device> devices, const std::string& nccl_library = kNcclLibrary);

  const std::vector<Device>& devices() const { return devices_; }
  // For a log: "one device", "nccl 2.28.9", "peer copies (libnccl.so.2: ...)".
  const std::string& transport() const { return transport_->name(); }

  // out = from[0] + from[1] + ..., fp32: out and from[0] on the root, from[i] on device i, in streams[i] (of device i).
  // `out` may be from[0]. The caller does not wait: later work in streams[i] may overwrite from[i], and later work in
  // streams[0] finds `out`. Peer copies add in the order of the devices, each addition rounded to fp32; NCCL in an
  // order of its own, the same for the same devices and length. kInternal when a device or NCCL failed; NCCL then fails
  // from now on.
  Status reduce(std::span<const DeviceSpan<const float>> from, DeviceSpan<float> out, std::span<Stream> streams);

 private:
  std::vector<Device> devices_;
  std::unique_ptr<GroupTransport> transport_;
};

}  // namespace fluvial::kernels

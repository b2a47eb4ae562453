#include "kernels/device_group.h"

#include <algorithm>
#include <array>

#include "core/base/format.h"
#include "kernels/device_backend.h"
#include "kernels/device_vector.h"
#include "kernels/nccl.h"

namespace fluvial::kernels {
namespace {

class OneDevice final : public GroupTransport {
 public:
  const std::string& name() const override { return name_; }
  Status reduce(std::span<const DeviceSpan<const float>> from, DeviceSpan<float> out,
                std::span<Stream> streams) override {
    if (from[0].data() == out.data()) return {};
    return copy_on_device(from[0], out, streams[0]);
  }

 private:
  std::string name_ = "one device";
};

// While the root adds up one piece, the next piece of every other device's vector is copied to it.
class PeerCopies final : public GroupTransport {
 public:
  static Result<std::unique_ptr<GroupTransport>> make(std::span<const Device> devices, const std::string& why) {
    auto copies = std::make_unique<PeerCopies>();
    copies->name_ = format_text("peer copies ({})", why);
    FLUVIAL_ASSIGN(Backend* const backend, backend_of(devices[0]));
    for (const Device& device : devices.subspan(1)) {
      backend->reach(devices[0].index, device.index);
      backend->reach(device.index, devices[0].index);
    }
    for (Slot& slot : copies->slots_) {
      FLUVIAL_ASSIGN(slot.free, Event::make(devices[0]));
      for (const Device& device : devices.subspan(1)) {
        FLUVIAL_ASSIGN(DeviceBuffer staged, DeviceBuffer::make(devices[0], kPieceValues * sizeof(float)));
        FLUVIAL_ASSIGN(Event arrived, Event::make(device));
        slot.staged.push_back(std::move(staged));
        slot.arrived.push_back(std::move(arrived));
      }
    }
    return std::unique_ptr<GroupTransport>(std::move(copies));
  }

  const std::string& name() const override { return name_; }

  Status reduce(std::span<const DeviceSpan<const float>> from, DeviceSpan<float> out,
                std::span<Stream> streams) override {
    for (std::size_t first = 0; first < out.size(); first += kPieceValues) {
      const std::size_t count = std::min(kPieceValues, out.size() - first);
      FLUVIAL_TRY(reduce_piece(from, out, streams, first, count));
    }
    return {};
  }

 private:
  static constexpr std::size_t kPieceValues = std::size_t{1} << 20;
  struct Slot {
    std::vector<DeviceBuffer> staged;  // of the devices but the root
    std::vector<Event> arrived;
    Event free;  // never recorded at first: the slot is free
  };

  Status reduce_piece(std::span<const DeviceSpan<const float>> from, DeviceSpan<float> out, std::span<Stream> streams,
                      std::size_t first, std::size_t count) {
    Slot& slot = slots_[next_++ % slots_.size()];
    std::vector<DeviceSpan<const float>> pieces = {from[0].subspan(first, count)};
    for (std::size_t i = 1; i < from.size(); ++i) {
      const DeviceSpan<float> staged = slot.staged[i - 1].as<float>().first(count);
      FLUVIAL_TRY(slot.free.hold(streams[i]));
      FLUVIAL_TRY(copy_on_device(from[i].subspan(first, count), staged, streams[i]));
      FLUVIAL_TRY(slot.arrived[i - 1].record(streams[i]));
      FLUVIAL_TRY(slot.arrived[i - 1].hold(streams[0]));
      pieces.push_back(staged);
    }
    FLUVIAL_TRY(device_reduce(pieces, out.subspan(first, count), streams[0]));
    return slot.free.record(streams[0]);
  }

  std::string name_;
  std::array<Slot, 2> slots_;
  std::size_t next_ = 0;
};

Status check_devices(std::span<const Device> devices) {
  if (devices.empty() || devices.size() > kReduceInputsMax) {
    return Error{Code::kInvalidArgument, format_text("{} devices, expected 1 to {}", devices.size(), kReduceInputsMax)};
  }
  for (std::size_t i = 0; i < devices.size(); ++i) {
    FLUVIAL_TRY(check_device(devices[i]));
    if (devices[i].kind != devices[0].kind || std::ranges::count(devices, devices[i]) != 1) {
      return Error{Code::kInvalidArgument, "a group is of different devices of one kind"};
    }
  }
  return {};
}

// NCCL connects devices when they first add something up. Only then does it notice that it cannot, for example because
// a container lacks shared memory.
Status try_out(GroupTransport& transport, std::span<const Device> devices) {
  const std::array<float, 1> one = {1};
  std::array<float, 1> sum = {0};
  std::vector<Stream> streams;
  std::vector<DeviceBuffer> buffers;
  std::vector<DeviceSpan<const float>> from;
  for (const Device& device : devices) {
    FLUVIAL_ASSIGN(Stream stream, Stream::make(device));
    FLUVIAL_ASSIGN(DeviceBuffer buffer, DeviceBuffer::make(device, sizeof(float)));
    FLUVIAL_TRY(copy_to_device(std::span<const float>(one), buffer.as<float>(), stream));
    from.push_back(buffer.as<float>());
    streams.push_back(std::move(stream));
    buffers.push_back(std::move(buffer));
  }
  FLUVIAL_TRY(transport.reduce(from, buffers[0].as<float>(), streams));
  FLUVIAL_TRY(copy_to_host(DeviceSpan<const float>(buffers[0].as<float>()), std::span<float>(sum), streams[0]));
  for (Stream& stream : streams) FLUVIAL_TRY(stream.synchronize());
  if (sum[0] == static_cast<float>(devices.size())) return {};
  return Error{Code::kInternal, format_text("{} ones added up to {}", devices.size(), sum[0])};
}

Result<std::unique_ptr<GroupTransport>> make_transport(std::span<const Device> devices, const std::string& library) {
  if (devices.size() == 1) return std::unique_ptr<GroupTransport>(std::make_unique<OneDevice>());
  if (devices[0].kind != DeviceKind::kCuda && library == kNcclLibrary) {
    return PeerCopies::make(devices, format_text("{}: not for these devices", library));
  }
  Result<std::unique_ptr<GroupTransport>> nccl = make_nccl(library, devices);
  if (!nccl.ok()) return PeerCopies::make(devices, nccl.error().message);
  const Status works = try_out(**nccl, devices);
  if (works.ok()) return nccl;
  return PeerCopies::make(devices, format_text("{}: {}", library, works.error().message));
}

}  // namespace

Result<DeviceGroup> DeviceGroup::make(std::vector<Device> devices, const std::string& nccl_library) {
  FLUVIAL_TRY(check_devices(devices));
  DeviceGroup group;
  FLUVIAL_ASSIGN(group.transport_, make_transport(devices, nccl_library));
  group.devices_ = std::move(devices);
  return group;
}

Status DeviceGroup::reduce(std::span<const DeviceSpan<const float>> from, DeviceSpan<float> out,
                           std::span<Stream> streams) {
  FLUVIAL_CHECK(from.size() == devices_.size() && streams.size() == devices_.size(), "a vector and a stream a device");
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    FLUVIAL_CHECK(from[i].size() == out.size(), "device vectors of different lengths");
    FLUVIAL_CHECK(streams[i].device() == devices_[i], "a stream of another device");
  }
  return out.empty() ? Status() : transport_->reduce(from, out, streams);
}

}  // namespace fluvial::kernels

#include "kernels/device.h"

#include <algorithm>
#include <charconv>

#include "core/base/format.h"
#include "kernels/device_backend.h"

namespace fluvial::kernels {
namespace {

Backend*& emulated_backend() {
  static Backend* backend = nullptr;
  return backend;
}

Error not_a_device(std::string_view text) {
  return {Code::kInvalidArgument, format_text("device '{}', expected cpu, cuda or cuda:N", text)};
}

}  // namespace

void set_emulated_backend(Backend* backend) { emulated_backend() = backend; }

Result<Device> parse_device(std::string_view text) {
  if (text == "cpu") return Device::cpu();
  const std::string_view name = text.substr(0, text.find(':'));
  const bool is_cuda = name == "cuda";
  if (!is_cuda && name != "emulated") return not_a_device(text);
  Device device{is_cuda ? DeviceKind::kCuda : DeviceKind::kEmulated, 0};
  if (text == name) return device;
  const std::string_view digits = text.substr(name.size() + 1);
  unsigned index = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  if (error != std::errc() || end != digits.data() + digits.size() || index > 1023) return not_a_device(text);
  device.index = static_cast<int>(index);
  return device;
}

std::string to_string(const Device& device) {
  switch (device.kind) {
    case DeviceKind::kCpu: return "cpu";
    case DeviceKind::kCuda: return format_text("cuda:{}", device.index);
    case DeviceKind::kEmulated: return format_text("emulated:{}", device.index);
  }
  return "unknown";
}

Result<Backend*> backend_of(const Device& device) {
  Backend* backend = nullptr;
  switch (device.kind) {
    case DeviceKind::kCpu: backend = &cpu_backend(); break;
    case DeviceKind::kCuda: backend = cuda_backend(); break;
    case DeviceKind::kEmulated: backend = emulated_backend(); break;
  }
  if (backend == nullptr) {
    return Error{Code::kUnavailable, format_text("device {}: not in this build", to_string(device))};
  }
  FLUVIAL_TRY(backend->check(device.index));
  return backend;
}

Status check_device(const Device& device) {
  FLUVIAL_TRY(backend_of(device));
  return {};
}

Result<Stream> Stream::make(const Device& device) {
  FLUVIAL_ASSIGN(Backend* const backend, backend_of(device));
  FLUVIAL_ASSIGN(void* const handle, backend->make_stream(device.index));
  Stream stream;
  stream.device_ = device;
  stream.handle_ = BackendHandle(backend, handle, [](Backend& b, void* h) { b.free_stream(h); });
  return stream;
}

Status Stream::synchronize() { return backend().synchronize(get()); }

Result<Event> Event::make(const Device& device) {
  FLUVIAL_ASSIGN(Backend* const backend, backend_of(device));
  FLUVIAL_ASSIGN(void* const handle, backend->make_event(device.index));
  Event event;
  event.handle_ = BackendHandle(backend, handle, [](Backend& b, void* h) { b.free_event(h); });
  return event;
}

Status Event::record(Stream& stream) { return handle_.backend().record(handle_.get(), stream.get()); }
Status Event::wait() { return handle_.backend().wait(handle_.get()); }
Status Event::hold(Stream& stream) { return handle_.backend().hold(stream.get(), handle_.get()); }

Result<DeviceBuffer> DeviceBuffer::make(const Device& device, std::size_t bytes) {
  FLUVIAL_ASSIGN(Backend* const backend, backend_of(device));
  FLUVIAL_ASSIGN(void* const memory, backend->allocate(device.index, std::max<std::size_t>(bytes, 1)));
  DeviceBuffer buffer;
  buffer.size_ = bytes;
  buffer.handle_ = BackendHandle(backend, memory, [](Backend& b, void* h) { b.free(h); });
  return buffer;
}

Result<PinnedBuffer> PinnedBuffer::make(const Device& device, std::size_t bytes) {
  FLUVIAL_ASSIGN(Backend* const backend, backend_of(device));
  FLUVIAL_ASSIGN(void* const memory, backend->allocate_pinned(device.index, std::max<std::size_t>(bytes, 1)));
  PinnedBuffer buffer;
  buffer.size_ = bytes;
  buffer.handle_ = BackendHandle(backend, memory, [](Backend& b, void* h) { b.free_pinned(h); });
  return buffer;
}

Status copy_bytes(void* to, const void* from, std::size_t bytes, Stream& stream) {
  if (bytes == 0) return {};
  return stream.backend().copy(to, from, bytes, stream.get());
}

Status fill_zero(DeviceSpan<std::byte> to, Stream& stream) {
  if (to.empty()) return {};
  return stream.backend().zero(to.data(), to.size(), stream.get());
}

}  // namespace fluvial::kernels

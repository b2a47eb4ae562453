// Host memory in place of a device's, for the emulator: what is in a stream is done when the call returns.
#include "kernels/cuda/emulated/device.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <new>

#include "core/base/format.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/emulated/memory.h"

namespace fluvial::kernels {
namespace emulated {
namespace {

constexpr std::align_val_t kMemoryAlignment{256};

int device_count = 1;
std::atomic<bool> devices_fail = false;

Status working() {
  if (!devices_fail) return {};
  return Error{Code::kInternal, "the emulated device has failed"};
}

std::atomic<bool> copies_paused = false;
std::atomic<int> copies_waiting = 0;

void wait_while_paused() {
  if (!copies_paused) return;
  ++copies_waiting;
  copies_waiting.notify_all();
  copies_paused.wait(true);
  --copies_waiting;
}

struct EventState {
  int device = 0;
};

StreamState& stream_state(void* stream) { return *static_cast<StreamState*>(stream); }

}  // namespace

Status Runtime::check(int device_index) {
  if (device_index >= 0 && device_index < device_count) return {};
  return Error{Code::kInvalidArgument, format_text("no emulated device {} of {}", device_index, device_count)};
}
Result<void*> Runtime::make_stream(int device_index) {
  return static_cast<void*>(new StreamState{.device = device_index});
}
void Runtime::free_stream(void* stream) { delete &stream_state(stream); }
Status Runtime::synchronize(void*) { return working(); }
void* Runtime::native_stream(void* stream) { return stream; }
Result<void*> Runtime::make_event(int device_index) {
  return static_cast<void*>(new EventState{.device = device_index});
}
void Runtime::free_event(void* event) { delete static_cast<EventState*>(event); }
Status Runtime::record(void* event, void* stream) {
  if (static_cast<EventState*>(event)->device == stream_state(stream).device) return working();
  return Error{Code::kInternal, "an event is recorded in a stream of another device"};  // as CUDA has it
}
Status Runtime::wait(void*) { return working(); }
Status Runtime::hold(void*, void*) { return working(); }

Result<void*> Runtime::allocate(int device_index, std::size_t bytes) { return allocate_memory(device_index, bytes); }
void Runtime::free(void* memory) { free_memory(memory); }
Result<void*> Runtime::allocate_pinned(int, std::size_t bytes) {
  void* const memory = ::operator new(bytes, kMemoryAlignment);
  std::memset(memory, 0, bytes);
  return memory;
}
void Runtime::free_pinned(void* memory) { ::operator delete(memory, kMemoryAlignment); }
Status Runtime::copy(void* to, const void* from, std::size_t bytes, void*) {
  wait_while_paused();
  FLUVIAL_TRY(working());
  std::memmove(to, from, bytes);
  return {};
}
void Runtime::reach(int, int) {}
Status Runtime::zero(void* to, std::size_t bytes, void*) {
  FLUVIAL_TRY(working());
  std::memset(to, 0, bytes);
  return {};
}

Result<DeviceUuid> Runtime::uuid(int device_index) { return uuid_of(device_index); }
Result<MemoryHandle> Runtime::export_memory(void* memory) { return emulated::export_memory(memory); }
Result<OpenedMemory> Runtime::open_memory(int device_index, const MemoryHandle& handle) {
  FLUVIAL_ASSIGN(const OpenedView view, emulated::open_memory(device_index, handle));
  return OpenedMemory{new OpenedView(view), {static_cast<const std::byte*>(view.memory), view.bytes}};
}
void Runtime::close_memory(void* handle) {
  const std::unique_ptr<OpenedView> view(static_cast<OpenedView*>(handle));
  emulated::close_memory(*view);
}

}  // namespace emulated

bool use_emulated_device(int count) {
  FLUVIAL_CHECK(count >= 1 && count <= emulated::kDevicesMax, "so many emulated devices");
  if (!emulated::is_supported()) return false;
  emulated::device_count = count;
  set_emulated_backend(&emulated::backend());
  return true;
}

void fail_emulated_devices(bool failing) { emulated::devices_fail = failing; }

void pause_emulated_copies(bool paused) {
  emulated::copies_paused = paused;
  emulated::copies_paused.notify_all();
}
void wait_for_paused_copy() { emulated::copies_waiting.wait(0); }

void emulate_in_descending_order(bool descending) {
  emulated::set_order(descending ? emulated::Order::kDescending : emulated::Order::kAscending);
}

}  // namespace fluvial::kernels

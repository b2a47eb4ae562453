// Host memory in place of a device's, and streams, for the emulator.
#include "kernels/cuda/emulated/device.h"

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "core/base/format.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/emulated/memory.h"
#include "kernels/cuda/emulated/streams.h"

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
  Point point;
};

// Memory of the host that copies run beside, by its end.
struct Pinned {
  std::mutex mutex;
  std::map<const std::byte*, std::byte*> pieces;
};

Pinned& pinned() {
  static Pinned pinned;
  return pinned;
}

// Neither a device's nor pinned: a copy from it is over, for the caller, when the call returns; one to it, in truth.
bool is_pageable(const void* address) {
  if (find_memory(address)) return false;
  const std::lock_guard lock(pinned().mutex);
  const auto piece = pinned().pieces.upper_bound(static_cast<const std::byte*>(address));
  return piece == pinned().pieces.end() || address < piece->second;
}

EventState& event_state(void* event) { return *static_cast<EventState*>(event); }
const std::shared_ptr<Queue>& queue_of(void* stream) { return static_cast<StreamState*>(stream)->queue; }

}  // namespace

Status Runtime::check(int device_index) {
  if (device_index >= 0 && device_index < device_count) return {};
  return Error{Code::kInvalidArgument, format_text("no emulated device {} of {}", device_index, device_count)};
}
Result<void*> Runtime::make_stream(int device_index) {
  return static_cast<void*>(new StreamState{.queue = make_queue(device_index), .device = device_index});
}
void Runtime::free_stream(void* stream) {
  finish(end_of(queue_of(stream)));
  delete static_cast<StreamState*>(stream);
}
Status Runtime::synchronize(void* stream) {
  finish(end_of(queue_of(stream)));
  return working();
}
void* Runtime::native_stream(void* stream) {
  finish(end_of(queue_of(stream)));  // a library knows no queues: it runs at once
  return stream;
}
Result<void*> Runtime::make_event(int device_index) {
  return static_cast<void*>(new EventState{.device = device_index});
}
void Runtime::free_event(void* event) { delete &event_state(event); }
Status Runtime::record(void* event, void* stream) {
  if (event_state(event).device != device_of(*queue_of(stream))) {  // as CUDA has it
    return Error{Code::kInternal, "an event is recorded in a stream of another device"};
  }
  event_state(event).point = end_of(queue_of(stream));
  return working();
}
Status Runtime::wait(void* event) {
  finish(event_state(event).point);
  return working();
}
Status Runtime::hold(void* stream, void* event) {
  put_wait(*queue_of(stream), event_state(event).point);
  return working();
}

Result<void*> Runtime::allocate(int device_index, std::size_t bytes) { return allocate_memory(device_index, bytes); }
void Runtime::free(void* memory) {
  finish_all();  // CUDA waits here, too
  free_memory(memory);
}
Result<void*> Runtime::allocate_pinned(int, std::size_t bytes) {
  auto* const memory = static_cast<std::byte*>(::operator new(bytes, kMemoryAlignment));
  std::memset(memory, 0, bytes);
  const std::lock_guard lock(pinned().mutex);
  pinned().pieces[memory + bytes] = memory;
  return static_cast<void*>(memory);
}
void Runtime::free_pinned(void* memory) {
  finish_all();
  const std::lock_guard lock(pinned().mutex);
  std::erase_if(pinned().pieces, [memory](const auto& piece) { return piece.second == memory; });
  ::operator delete(memory, kMemoryAlignment);
}
Status Runtime::copy(void* to, const void* from, std::size_t bytes, void* stream) {
  wait_while_paused();
  FLUVIAL_TRY(working());
  const bool runs_now = runs_at_once() || is_pageable(to);
  if (!runs_now && is_pageable(from)) {
    const auto* const begin = static_cast<const std::byte*>(from);
    put(*queue_of(stream),
        [to, copy = std::vector<std::byte>(begin, begin + bytes)] { std::memcpy(to, copy.data(), copy.size()); });
    return {};
  }
  put(*queue_of(stream), [to, from, bytes] { std::memmove(to, from, bytes); });
  return runs_now ? synchronize(stream) : Status();
}
void Runtime::reach(int, int) {}
Status Runtime::zero(void* to, std::size_t bytes, void* stream) {
  FLUVIAL_TRY(working());
  put(*queue_of(stream), [to, bytes] { std::memset(to, 0, bytes); });
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
void emulate_work(EmulatedWork when) { emulated::set_when(when); }

void emulate_in_descending_order(bool descending) {
  emulated::set_order(descending ? emulated::Order::kDescending : emulated::Order::kAscending);
}

}  // namespace fluvial::kernels

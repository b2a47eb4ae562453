// Host memory in place of a device's, for the emulator: what is in a stream is done when the call returns.
#include "kernels/cuda/emulated/device.h"

#include <cstring>
#include <new>

#include "kernels/cuda/backend.h"

namespace fluvial::kernels {
namespace emulated {
namespace {

constexpr std::align_val_t kMemoryAlignment{256};
constexpr int kPoison = 0xa5;  // memory of a device is not zero

}  // namespace

Status Runtime::check(int device_index) {
  if (device_index == 0) return {};
  return Error{Code::kInvalidArgument, "the emulated device is one"};
}
Result<void*> Runtime::make_stream(int) { return static_cast<void*>(new StreamState); }
void Runtime::free_stream(void* stream) { delete static_cast<StreamState*>(stream); }
Status Runtime::synchronize(void*) { return {}; }
Result<void*> Runtime::make_event(int) { return static_cast<void*>(this); }
void Runtime::free_event(void*) {}
Status Runtime::record(void*, void*) { return {}; }
Status Runtime::wait(void*) { return {}; }
Status Runtime::hold(void*, void*) { return {}; }

Result<void*> Runtime::allocate(int, std::size_t bytes) {
  void* const memory = ::operator new(bytes, kMemoryAlignment);
  std::memset(memory, kPoison, bytes);
  return memory;
}
void Runtime::free(void* memory) { ::operator delete(memory, kMemoryAlignment); }
Result<void*> Runtime::allocate_pinned(int, std::size_t bytes) {
  void* const memory = ::operator new(bytes, kMemoryAlignment);
  std::memset(memory, 0, bytes);
  return memory;
}
void Runtime::free_pinned(void* memory) { free(memory); }
Status Runtime::copy(void* to, const void* from, std::size_t bytes, void*) {
  std::memmove(to, from, bytes);
  return {};
}
Status Runtime::zero(void* to, std::size_t bytes, void*) {
  std::memset(to, 0, bytes);
  return {};
}

}  // namespace emulated

bool use_emulated_device() {
  if (!emulated::is_supported()) return false;
  set_emulated_backend(&emulated::backend());
  return true;
}

void emulate_in_descending_order(bool descending) {
  emulated::set_order(descending ? emulated::Order::kDescending : emulated::Order::kAscending);
}

}  // namespace fluvial::kernels

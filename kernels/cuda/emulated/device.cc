// Host memory in place of a device's, for the emulator: what is in a stream is done when the call returns.
#include "kernels/cuda/emulated/device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>
#include <unordered_map>

#include "kernels/cuda/backend.h"

namespace fluvial::kernels {
namespace emulated {
namespace {

constexpr std::align_val_t kMemoryAlignment{256};
constexpr int kPoison = 0xa5;  // memory of a device is not zero

std::size_t round_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

// Memory that ends where a page begins that may not be touched: what a kernel reads or writes beyond it stops the test.
// So it is aligned to what kernels may rely on, and no more.
class GuardedMemory {
 public:
  Result<void*> allocate(std::size_t bytes) {
    const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t room = round_up(bytes, kPackAlignment);
    const std::size_t size = round_up(room, page);
    void* const begin = mmap(nullptr, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (begin == MAP_FAILED) return Error{Code::kResourceExhausted, "no memory for the emulated device"};
    FLUVIAL_CHECK(mprotect(static_cast<std::byte*>(begin) + size, page, PROT_NONE) == 0, "a page to guard memory");
    std::byte* const memory = static_cast<std::byte*>(begin) + size - room;
    std::memset(memory, kPoison, room);
    mapped_[memory] = {begin, size + page};
    return static_cast<void*>(memory);
  }
  void free(void* memory) {
    const auto found = mapped_.find(memory);
    FLUVIAL_CHECK(found != mapped_.end(), "memory of the emulated device");
    munmap(found->second.begin, found->second.size);
    mapped_.erase(found);
  }

 private:
  static constexpr std::size_t kPackAlignment = 16;
  struct Mapping {
    void* begin = nullptr;
    std::size_t size = 0;
  };
  std::unordered_map<void*, Mapping> mapped_;
};

GuardedMemory& guarded_memory() {
  static GuardedMemory memory;
  return memory;
}

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

Result<void*> Runtime::allocate(int, std::size_t bytes) { return guarded_memory().allocate(bytes); }
void Runtime::free(void* memory) { guarded_memory().free(memory); }
Result<void*> Runtime::allocate_pinned(int, std::size_t bytes) {
  void* const memory = ::operator new(bytes, kMemoryAlignment);
  std::memset(memory, 0, bytes);
  return memory;
}
void Runtime::free_pinned(void* memory) { ::operator delete(memory, kMemoryAlignment); }
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

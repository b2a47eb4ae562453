// Memory of the emulated devices: memfds, so that another process can open it, and a page after it that may not be
// touched. For the emulator, and for libraries of tests that stand in for a driver. Thread safe.
#pragma once

#include <cstdint>
#include <optional>

#include "kernels/device_memory.h"

namespace fluvial::kernels::emulated {

inline constexpr int kDevicesMax = 16;

DeviceUuid uuid_of(int device_index);

struct Allocation {
  void* memory = nullptr;
  std::size_t bytes = 0;
  int device_index = 0;
};

// Poisoned, as memory of a device is not zero; aligned to 16 bytes. kResourceExhausted.
Result<void*> allocate_memory(int device_index, std::size_t bytes);
void free_memory(void* memory);               // from allocate_memory
std::size_t memory_in_use(int device_index);  // of this process
void limit_memory(std::size_t bytes);         // from here on, of each device, for all of this process together
// The allocation that holds this address, if it is memory of an emulated device: allocated here, or opened.
std::optional<Allocation> find_memory(const void* address);
// A handle of memory from allocate_memory.
MemoryHandle export_memory(const void* memory);

struct OpenedView {
  const void* memory = nullptr;
  std::size_t bytes = 0;
};
// Opens a handle of this or another process. Nothing in its bytes is trusted: kInvalidArgument.
Result<OpenedView> open_memory(int device_index, const MemoryHandle& handle);
void close_memory(const OpenedView& view);
std::size_t views_open(int device_index);  // of this process

// While it lives, nobody can touch memory of other devices.
class OnlyMemoryOf {
 public:
  explicit OnlyMemoryOf(int device_index);
  OnlyMemoryOf(const OnlyMemoryOf&) = delete;
  ~OnlyMemoryOf();

 private:
  int device_index_;
};

// The parts of a handle.
struct HandleParts {
  static constexpr std::uint64_t kMagic = 0x314d454d554c4d45;
  std::uint64_t magic = kMagic;
  std::int32_t device_index = 0;
  std::int32_t process = 0;
  std::int32_t descriptor = 0;
  std::uint32_t reserved = 0;
  std::uint64_t inode = 0;  // a descriptor's number may be another file's by now
  std::uint64_t file_bytes = 0;
  std::uint64_t first_byte = 0;  // of the allocation, in the file
  std::uint64_t bytes = 0;
  std::uint64_t rest = 0;
};
static_assert(sizeof(HandleParts) == sizeof(MemoryHandle));

}  // namespace fluvial::kernels::emulated

#include "core/tree/heap.h"

#include <malloc.h>
#include <sys/mman.h>

#include <utility>

#include "core/wire/frame.h"

namespace fluvial::tree {
namespace {

constexpr std::size_t kHugePageBytes = std::size_t{2} << 20;
// As long as a frame's payload may be. That is reserved when a peer announces it and counted as it arrives: with huge
// pages its first byte would already take 2 MiB.
constexpr std::size_t kSmallPagesBytes = wire::kPayloadBytesMax;

// Scratch of a codec or a vector of values: below this it stays in the heap. The most that glibc takes.
constexpr int kMmapThresholdBytes = 32 << 20;
// What is free at the top of an arena stays up to here (128 KiB if nobody says so, and then every chunk's scratch would
// fault its pages in anew).
constexpr int kTrimThresholdBytes = 16 << 20;
// Left to itself glibc opens an arena for almost each thread, and each keeps memory of its own.
constexpr int kArenasMax = 2;

std::byte* map(std::size_t bytes) {
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

void unmap(std::byte* block, std::size_t bytes) {
  if (bytes > 0) ::munmap(block, bytes);
}

std::byte* map_block(std::size_t bytes) {
  if (bytes <= kSmallPagesBytes) return map(bytes);
  std::byte* const memory = map(bytes + kHugePageBytes);  // a block begins at a huge page: cut to fit
  if (memory == nullptr) return nullptr;
  const std::size_t before = (kHugePageBytes - reinterpret_cast<std::uintptr_t>(memory) % kHugePageBytes) %  // NOLINT
                             kHugePageBytes;
  unmap(memory, before);
  unmap(memory + before + bytes, kHugePageBytes - before);
  ::madvise(memory + before, bytes, MADV_HUGEPAGE);  // where the kernel has them
  return memory + before;
}

}  // namespace

BufferPool::Pages mapped_pages() { return {map_block, unmap}; }

// Large Buffers, the long-lived ones among them, are not in the heap: so its thresholds may be high. With them in it,
// thresholds like these took 618 MiB instead of 450 at an aggregator with 16 children and 10 M parameters.
void settle_heap() {
  mallopt(M_MMAP_THRESHOLD, kMmapThresholdBytes);
  mallopt(M_TRIM_THRESHOLD, kTrimThresholdBytes);
  mallopt(M_ARENA_MAX, kArenasMax);
  BufferPool::shared().take_from(mapped_pages());
}

IdleMemory::IdleMemory(BufferPool& pool, std::function<void()> trim_heap)
    : pool_(pool), trim_heap_(std::move(trim_heap)) {}

bool IdleMemory::look() {
  const std::lock_guard lock(mutex_);
  const std::uint64_t taken = pool_.counts().taken;
  const bool idle = std::exchange(taken_, taken) == taken;
  if (!idle || given_back_) {
    given_back_ = idle;
    return false;
  }
  given_back_ = true;
  pool_.trim();
  trim_heap_();
  return true;
}

void trim_heap() { ::malloc_trim(0); }

}  // namespace fluvial::tree

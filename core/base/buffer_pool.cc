#include "core/base/buffer_pool.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <new>
#include <utility>

#include "core/base/check.h"

namespace fluvial {
namespace {

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(memory_sanitizer)
constexpr bool kWatched = true;
#else
constexpr bool kWatched = false;
#endif
#elif defined(__SANITIZE_ADDRESS__)
constexpr bool kWatched = true;
#else
constexpr bool kWatched = false;
#endif

constexpr std::align_val_t kBlockAlignment{64};

}  // namespace

const bool BufferPool::kServesBuffers = !kWatched;

// Never destroyed: Buffers of other statics may go after it.
BufferPool& BufferPool::shared() {
  static BufferPool& pool = *new BufferPool;
  return pool;
}

BufferPool::~BufferPool() {
  FLUVIAL_CHECK(counts_.used_bytes == 0, "a pool that goes before its blocks");
  unmake(let_go());
}

std::size_t BufferPool::block_bytes(std::size_t bytes) { return (bytes + kGrainBytes - 1) / kGrainBytes * kGrainBytes; }

std::byte* BufferPool::take(std::size_t asked_bytes) {
  FLUVIAL_CHECK(asked_bytes >= kLeastBytes, "a block that is the heap's");
  if (asked_bytes > SIZE_MAX / 2) throw std::bad_alloc();
  const std::size_t bytes = block_bytes(asked_bytes);
  Stretches in_the_way;
  {
    const std::lock_guard lock(mutex_);
    ++counts_.taken;
    if (std::byte* const block = cut(bytes)) {
      ++counts_.reused;
      use(bytes);
      return block;
    }
    in_the_way = make_room(bytes);
    use(bytes);
  }
  unmake(in_the_way);
  if (std::byte* const block = make(bytes)) return block;
  trim();
  if (std::byte* const block = make(bytes)) return block;
  const std::lock_guard lock(mutex_);
  counts_.used_bytes -= bytes;
  throw std::bad_alloc();
}

void BufferPool::give_back(std::byte* block, std::size_t asked_bytes) {
  const std::size_t bytes = block_bytes(asked_bytes);
  {
    const std::lock_guard lock(mutex_);
    FLUVIAL_CHECK(counts_.used_bytes >= bytes, "more given back than taken");
    counts_.used_bytes -= bytes;
    if (pages_.take != nullptr) return keep(block, bytes);
  }
  ::operator delete(block, kBlockAlignment);
}

// Where several are as short, the one that lies lowest: so blocks gather at one end, and the other stays whole.
std::byte* BufferPool::cut(std::size_t bytes) {
  const auto found = by_bytes_.lower_bound({bytes, nullptr});
  if (found == by_bytes_.end()) return nullptr;
  const auto [stretch_bytes, stretch] = *found;
  forget(kept_.find(stretch));
  if (stretch_bytes > bytes) keep(stretch + bytes, stretch_bytes - bytes);
  return stretch;
}

void BufferPool::keep(std::byte* stretch, std::size_t bytes) {
  auto after = kept_.lower_bound(stretch);
  if (after != kept_.end() && after->first == stretch + bytes) {
    bytes += after->second;
    forget(after++);
  }
  if (after != kept_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == stretch) {
      stretch = before->first;
      bytes += before->second;
      forget(before);
    }
  }
  kept_.emplace(stretch, bytes);
  by_bytes_.emplace(bytes, stretch);
  counts_.kept_bytes += bytes;
}

void BufferPool::forget(std::map<std::byte*, std::size_t>::iterator stretch) {
  counts_.kept_bytes -= stretch->second;
  by_bytes_.erase({stretch->second, stretch->first});
  kept_.erase(stretch);
}

void BufferPool::use(std::size_t bytes) {
  counts_.used_bytes += bytes;
  counts_.peak_bytes = std::max(counts_.peak_bytes, counts_.used_bytes);
}

// What must go so that a new block stays within the bound, and no more: ends of the longest stretches.
BufferPool::Stretches BufferPool::make_room(std::size_t bytes) {
  Stretches gone;
  const std::uint64_t used = counts_.used_bytes + bytes;
  const std::uint64_t most = std::max(counts_.peak_bytes, used) + kSlackBytes;
  while (used + counts_.kept_bytes > most) {
    const auto [stretch_bytes, stretch] = *by_bytes_.rbegin();
    const std::size_t excess = block_bytes(static_cast<std::size_t>(used + counts_.kept_bytes - most));
    const std::size_t stays = stretch_bytes - std::min(stretch_bytes, excess);
    forget(kept_.find(stretch));
    if (stays > 0) keep(stretch, stays);
    gone.emplace_back(stretch + stays, stretch_bytes - stays);
  }
  return gone;
}

BufferPool::Stretches BufferPool::let_go() {
  Stretches gone(kept_.begin(), kept_.end());
  kept_.clear();
  by_bytes_.clear();
  counts_.kept_bytes = 0;
  counts_.peak_bytes = counts_.used_bytes;
  return gone;
}

std::byte* BufferPool::make(std::size_t bytes) const {
  if (pages_.take != nullptr) return pages_.take(bytes);
  return static_cast<std::byte*>(::operator new(bytes, kBlockAlignment, std::nothrow));
}

void BufferPool::unmake(const Stretches& stretches) const {
  for (const auto& [stretch, bytes] : stretches) pages_.give_back(stretch, bytes);
}

void BufferPool::trim() {
  Stretches gone;
  {
    const std::lock_guard lock(mutex_);
    gone = let_go();
  }
  unmake(gone);
}

void BufferPool::take_from(Pages pages) {
  const std::lock_guard lock(mutex_);
  FLUVIAL_CHECK(counts_.taken == 0, "blocks that came from elsewhere");
  pages_ = pages;
}

BufferPool::Counts BufferPool::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace fluvial

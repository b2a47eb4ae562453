#include "core/base/buffer_pool.h"

#include <algorithm>
#include <bit>
#include <cstdint>
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

constexpr std::size_t kClassesBetweenPowers = 8;

constexpr std::align_val_t kAlignment{64};

std::byte* heap_take(std::size_t bytes) {
  return static_cast<std::byte*>(::operator new(bytes, kAlignment, std::nothrow));
}
void heap_give_back(std::byte* block, std::size_t) { ::operator delete(block, kAlignment); }

}  // namespace

const bool BufferPool::kServesBuffers = !kWatched;

// Never destroyed: Buffers of other statics may go after it.
BufferPool& BufferPool::shared() {
  static BufferPool& pool = *new BufferPool;
  return pool;
}

BufferPool::BufferPool() : pages_{heap_take, heap_give_back} {}

BufferPool::~BufferPool() {
  FLUVIAL_CHECK(counts_.used_bytes == 0, "a pool that goes before its blocks");
  free_all(let_go());
}

std::size_t BufferPool::class_of(std::size_t bytes) {
  const std::size_t step = std::bit_floor(std::max(bytes, kLeastBytes)) / kClassesBetweenPowers;
  return (std::max(bytes, kLeastBytes) + step - 1) / step * step;
}

std::byte* BufferPool::take(std::size_t bytes) {
  FLUVIAL_CHECK(bytes >= kLeastBytes, "a block that is the heap's");
  if (bytes > SIZE_MAX / 2) throw std::bad_alloc();
  const std::size_t block_bytes = class_of(bytes);
  Blocks in_the_way;
  {
    const std::lock_guard lock(mutex_);
    ++counts_.taken;
    if (const auto found = kept_.find(block_bytes); found != kept_.end()) {
      std::byte* const block = found->second.back();
      found->second.pop_back();
      if (found->second.empty()) kept_.erase(found);
      ++counts_.reused;
      counts_.kept_bytes -= block_bytes;
      counts_.used_bytes += block_bytes;
      counts_.peak_bytes = std::max(counts_.peak_bytes, counts_.used_bytes);
      return block;
    }
    in_the_way = make_room(block_bytes);
    counts_.used_bytes += block_bytes;
    counts_.peak_bytes = std::max(counts_.peak_bytes, counts_.used_bytes);
  }
  free_all(in_the_way);
  if (std::byte* const block = make(block_bytes)) return block;
  trim();
  if (std::byte* const block = make(block_bytes)) return block;
  const std::lock_guard lock(mutex_);
  counts_.used_bytes -= block_bytes;
  throw std::bad_alloc();
}

std::byte* BufferPool::make(std::size_t block_bytes) const {
  return block_bytes >= kPagesBytes ? pages_.take(block_bytes) : heap_take(block_bytes);
}

void BufferPool::give_back(std::byte* block, std::size_t bytes) {
  const std::size_t block_bytes = class_of(bytes);
  const std::lock_guard lock(mutex_);
  FLUVIAL_CHECK(counts_.used_bytes >= block_bytes, "more given back than taken");
  kept_[block_bytes].push_back(block);
  counts_.used_bytes -= block_bytes;
  counts_.kept_bytes += block_bytes;
}

// What must go so that a new block stays within the bound. Each time the smallest block that suffices, or else the
// largest: so a chunk that is missing does not cost a model.
BufferPool::Blocks BufferPool::make_room(std::size_t block_bytes) {
  Blocks gone;
  const std::uint64_t used = counts_.used_bytes + block_bytes;
  const std::uint64_t most = std::max(counts_.peak_bytes, used) + kSlackBytes;
  while (used + counts_.kept_bytes > most) {
    auto from = kept_.lower_bound(static_cast<std::size_t>(used + counts_.kept_bytes - most));
    if (from == kept_.end()) --from;
    gone.emplace_back(from->second.back(), from->first);
    counts_.kept_bytes -= from->first;
    from->second.pop_back();
    if (from->second.empty()) kept_.erase(from);
  }
  return gone;
}

BufferPool::Blocks BufferPool::let_go() {
  Blocks gone;
  for (const auto& [block_bytes, blocks] : kept_) {
    for (std::byte* const block : blocks) gone.emplace_back(block, block_bytes);
  }
  kept_.clear();
  counts_.kept_bytes = 0;
  counts_.peak_bytes = counts_.used_bytes;
  return gone;
}

void BufferPool::free_all(const Blocks& blocks) const {
  for (const auto& [block, block_bytes] : blocks) {
    block_bytes >= kPagesBytes ? pages_.give_back(block, block_bytes) : heap_give_back(block, block_bytes);
  }
}

void BufferPool::trim() {
  Blocks gone;
  {
    const std::lock_guard lock(mutex_);
    gone = let_go();
  }
  free_all(gone);
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

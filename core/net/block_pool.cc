#include "core/net/block_pool.h"

#include <utility>

namespace fluvial::net {
namespace {

Buffer taken(std::vector<Buffer>& from) {
  Buffer block = std::move(from.back());
  from.pop_back();
  return block;
}

}  // namespace

BlockPool& BlockPool::shared() {
  static BlockPool pool;
  return pool;
}

Buffer BlockPool::acquire() {
  std::size_t bytes = kSmallBlockBytes;
  {
    const std::lock_guard lock(mutex_);
    if (!free_large_.empty()) return taken(free_large_);
    if (large_ < kLargeMost) {
      ++large_;
      bytes = kLargeBlockBytes;
    } else if (!free_small_.empty()) {
      return taken(free_small_);
    }
  }
  return Buffer(bytes);
}

void BlockPool::release(Buffer block) {
  const std::lock_guard lock(mutex_);
  if (block.size() == kLargeBlockBytes) {
    free_large_.push_back(std::move(block));
  } else if (free_small_.size() < kSmallKept) {
    free_small_.push_back(std::move(block));
  }
}

}  // namespace fluvial::net

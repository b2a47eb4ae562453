#include "core/net/block_pool.h"

#include <utility>

namespace fluvial::net {

BlockPool& BlockPool::shared() {
  static BlockPool pool;
  return pool;
}

Buffer BlockPool::acquire() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      Buffer block = std::move(free_.back());
      free_.pop_back();
      return block;
    }
  }
  return Buffer(kBlockBytes);
}

void BlockPool::release(Buffer block) {
  const std::lock_guard lock(mutex_);
  if (free_.size() < kKept) free_.push_back(std::move(block));
}

}  // namespace fluvial::net

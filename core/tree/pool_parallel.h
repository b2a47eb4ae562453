// Parallel on the node's pool: work that is itself a job of the pool gets as many hands as the pool has free.
#pragma once

#include "core/base/parallel.h"
#include "core/tree/runtime.h"

namespace fluvial::tree {

// Thread safe. for_each() is called on a thread of the pool; it does what nobody helps with, so a pool that is busy or
// full only means fewer hands. kInternal when a piece threw.
class PoolParallel final : public Parallel {
 public:
  explicit PoolParallel(Runtime& runtime) : pool_(&runtime.pool), threads_(runtime.pool_threads) {}
  Status for_each(std::size_t count, const std::function<Status(std::size_t)>& f) override;

 private:
  net::WorkerPool* pool_;
  std::size_t threads_;
};

// The same from a coroutine: f(0) ... f(count - 1) on the pool's threads.
net::Awaitable<Status> for_each_chunk(Runtime& runtime, std::size_t count, std::function<Status(std::size_t)> f);

}  // namespace fluvial::tree

// Work in pieces on a WorkerPool: the calling thread takes pieces itself, and idle threads of the pool help. So it ends
// also when it is called on the pool's only thread, or when the queue is full.
#pragma once

#include "core/base/parallel.h"
#include "core/net/worker_pool.h"

namespace fluvial::net {

// Thread safe; blocks the caller, so for threads of the pool, never for a strand. An exception of a piece is kInternal.
class PoolParallel final : public Parallel {
 public:
  explicit PoolParallel(WorkerPool& pool) : pool_(pool) {}

  Status for_each(std::size_t count, const std::function<Status(std::size_t)>& f) override;
  std::size_t width() const override { return pool_.threads(); }

 private:
  WorkerPool& pool_;
};

}  // namespace fluvial::net

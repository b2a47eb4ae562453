// A process' memory between rounds: kept for the next one, given back once none comes.
//
// What it promises: beyond what is in use, a process keeps at most the peak of its large Buffers and 4 MiB (nothing
// that the peak did not hold, core/base/buffer_pool.h), and some 32 MiB of the heap. So a coordinator or an aggregator
// stays within 12 bytes a parameter, its staging budget and 64 MiB.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>

#include "core/base/buffer_pool.h"

namespace fluvial::tree {

// Where large blocks come from in a process: mapped one by one, on huge pages if they are longer than what a peer can
// make this node reserve by announcing it (models, updates).
BufferPool::Pages mapped_pages();

// Once, at the start of the executable: before its first thread and its first large Buffer.
void settle_heap();

// Sees that no round has come for a while. Thread safe.
class IdleMemory {
 public:
  // `pool` outlives it. `trim_heap` gives back what the heap holds.
  IdleMemory(BufferPool& pool, std::function<void()> trim_heap);
  // To be called now and then; blocking. If nothing was taken from the pool since the call before, what is kept goes
  // back to the system: once, until something is taken again. True: it went now.
  bool look();

 private:
  BufferPool& pool_;
  std::function<void()> trim_heap_;
  std::mutex mutex_;
  std::uint64_t taken_ = 0;  // at the last look
  bool given_back_ = false;  // since then
};

void trim_heap();  // malloc_trim(3)

}  // namespace fluvial::tree

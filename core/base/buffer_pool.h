// Memory for large Buffers that stays: what a Buffer leaves is used again by later ones. The system zeroes fresh pages
// and takes a fault for each, and a round needs as much large memory as the round before.
//
// A round's phases want it in other pieces: first the children's chunks, then one model. So the pool keeps stretches of
// pages and not blocks: a block is cut from the shortest stretch that is long enough, and joins its neighbours when it
// comes back. The chunks of one phase are the model of the next.
//
// The pool never holds more than the most that was in use at once since the last trim(), plus kSlackBytes: so it adds
// next to nothing to the peak of a process. A block is at most kGrainBytes longer than what was asked for.
//
// Thread safe. The pool itself gives nothing back as time passes: somebody calls trim() when no rounds come
// (core/tree/heap.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

namespace fluvial {

class BufferPool {
 public:
  static constexpr std::size_t kLeastBytes = 64 * 1024;  // a smaller Buffer is the heap's
  static constexpr std::size_t kGrainBytes = 64 * 1024;  // blocks are multiples of it
  static constexpr std::size_t kSlackBytes = 4 * 1024 * 1024;

  struct Counts {
    std::uint64_t taken = 0;       // blocks, over the pool's life
    std::uint64_t reused = 0;      // of these, blocks of memory that was kept
    std::uint64_t used_bytes = 0;  // now, in whole grains
    std::uint64_t kept_bytes = 0;  // now, for reuse
    std::uint64_t peak_bytes = 0;  // the most that was used at once since the last trim()
  };
  // Where memory comes from. `take`: 64-byte aligned, null if there is none. `give_back`: any part of what was taken,
  // from one take or from several that happened to be neighbours, as munmap() does. Called from any thread.
  struct Pages {
    std::byte* (*take)(std::size_t bytes);
    void (*give_back)(std::byte* stretch, std::size_t bytes);
  };

  // Without pages each block comes from the heap and goes back there: nothing is kept.
  BufferPool() = default;
  explicit BufferPool(Pages pages) : pages_(pages) {}
  ~BufferPool();  // nothing is in use any more
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // Where Buffers take their memory: a cache without behaviour. Under a sanitizer for addresses or uninitialised memory
  // they do not (kServesBuffers): it must see each Buffer come and go.
  static BufferPool& shared();
  static const bool kServesBuffers;

  // At least `bytes` (kLeastBytes or more), 64-byte aligned, not initialised. std::bad_alloc if there is no memory,
  // even after everything that was kept has gone back to the system.
  std::byte* take(std::size_t bytes);
  void give_back(std::byte* block, std::size_t bytes);  // as it was taken
  void trim();                                          // what is kept goes back to the system
  void take_from(Pages pages);                          // before the first take()
  Counts counts() const;

  static std::size_t block_bytes(std::size_t bytes);  // of the block that serves it

 private:
  using Stretches = std::vector<std::pair<std::byte*, std::size_t>>;
  std::byte* make(std::size_t bytes) const;  // null if there is no memory
  void unmake(const Stretches& stretches) const;
  // Under the lock:
  std::byte* cut(std::size_t bytes);  // of what is kept; null if no stretch is long enough
  Stretches make_room(std::size_t bytes);
  Stretches let_go();
  void keep(std::byte* stretch, std::size_t bytes);
  void forget(std::map<std::byte*, std::size_t>::iterator stretch);
  void use(std::size_t bytes);

  mutable std::mutex mutex_;
  std::map<std::byte*, std::size_t> kept_;                 // stretches by their place; no two of them touch
  std::set<std::pair<std::size_t, std::byte*>> by_bytes_;  // the same
  Counts counts_;
  Pages pages_{nullptr, nullptr};  // fixed from the first take() on
};

}  // namespace fluvial

// Memory for large Buffers that stays: a block whose Buffer has gone is used again by the next one of its size. The
// system zeroes fresh pages and takes a fault for each, and a round needs the same large blocks as the round before.
//
// The pool never holds more than the most that was in use at once since the last trim(), plus kSlackBytes: so it adds
// next to nothing to the peak of a process. Blocks come in classes, eight between a power of two and the next; a block
// is at most an eighth larger than what was asked for, and pages of it that nobody writes cost nothing.
//
// Thread safe. The pool itself gives nothing back as time passes: somebody calls trim() when no rounds come
// (core/tree/heap.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace fluvial {

class BufferPool {
 public:
  static constexpr std::size_t kLeastBytes = 64 * 1024;    // a smaller Buffer is the heap's
  static constexpr std::size_t kPagesBytes = 1024 * 1024;  // from here on blocks are pages of their own (Pages)
  static constexpr std::size_t kSlackBytes = 16 * 1024 * 1024;

  struct Counts {
    std::uint64_t taken = 0;       // blocks, over the pool's life
    std::uint64_t reused = 0;      // of these, blocks that were kept
    std::uint64_t used_bytes = 0;  // now, by classes
    std::uint64_t kept_bytes = 0;  // now, for reuse
    std::uint64_t peak_bytes = 0;  // the most that was used at once since the last trim()
  };
  // Where blocks of kPagesBytes and more come from: 64-byte aligned, null if there is no memory. The heap, unless a
  // process says otherwise. Called from any thread.
  struct Pages {
    std::byte* (*take)(std::size_t block_bytes);
    void (*give_back)(std::byte* block, std::size_t block_bytes);
  };

  BufferPool();
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

  static std::size_t class_of(std::size_t bytes);  // the size of the block that serves it

 private:
  using Blocks = std::vector<std::pair<std::byte*, std::size_t>>;
  std::byte* make(std::size_t block_bytes) const;  // null if there is no memory
  void free_all(const Blocks& blocks) const;
  Blocks make_room(std::size_t block_bytes);  // under the lock
  Blocks let_go();                            // likewise

  mutable std::mutex mutex_;
  std::map<std::size_t, std::vector<std::byte*>> kept_;  // by class, none empty; the last one in is the next out
  Counts counts_;
  Pages pages_;  // fixed from the first take() on
};

}  // namespace fluvial

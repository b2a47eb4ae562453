// Where a parent keeps its children's updates, encoded, until it knows which of them count: in memory while the budget
// allows, in an unnamed file beyond (spill_files.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/store/file_system.h"
#include "core/store/spill_files.h"

namespace fluvial::store {

inline constexpr std::uint64_t kStagingBytesLeast = 32 << 20;

// The budget of a parent whose owner gives none, for a model of so many parameters: what the node's sum takes.
std::uint64_t staging_bytes_for(std::uint64_t value_count);

// Bytes of memory that all staged updates of a process share. Thread safe.
class StagingBudget {
 public:
  explicit StagingBudget(std::uint64_t bytes_max) : bytes_max_(bytes_max) {}
  // From the next take on: what is staged stays where it is, also beyond a smaller maximum.
  void set_bytes_max(std::uint64_t bytes_max) { bytes_max_.store(bytes_max, std::memory_order_relaxed); }
  bool try_take(std::uint64_t bytes);
  void give_back(std::uint64_t bytes);
  void note_spilled(std::uint64_t bytes) { spilled_.fetch_add(bytes, std::memory_order_relaxed); }
  void note_dropped(std::uint64_t bytes) { spilled_.fetch_sub(bytes, std::memory_order_relaxed); }
  std::uint64_t bytes_used() const { return used_.load(std::memory_order_relaxed); }
  std::uint64_t bytes_spilled() const { return spilled_.load(std::memory_order_relaxed); }
  std::uint64_t bytes_max() const { return bytes_max_.load(std::memory_order_relaxed); }
  SpillFiles& files() { return files_; }  // for what is beyond it

 private:
  std::atomic<std::uint64_t> bytes_max_;
  std::atomic<std::uint64_t> used_{0};
  std::atomic<std::uint64_t> spilled_{0};  // in files, beyond it
  SpillFiles files_;
};

// One update's chunks. Movable; one thread at a time, but read() and for_each() may run on several. Chunks are appended
// in order, index 0 first; what is in memory counts against the budget until destruction or clear(). Budget and file
// system outlive it.
class StagedUpdate {
 public:
  // `folder` holds the overflow. append() refuses to hold more than `bytes_max` in all (kResourceExhausted).
  StagedUpdate(StagingBudget& budget, FileSystem& files, std::string folder, std::uint64_t bytes_max);
  StagedUpdate(StagedUpdate&& other) noexcept;
  StagedUpdate& operator=(StagedUpdate&&) = delete;
  ~StagedUpdate();

  // kResourceExhausted also when the disk is full, kUnavailable when it fails in any other way. The update is then as
  // it was before, and the session may refuse it. The code never says that the update itself is bad.
  Status append(Buffer chunk);
  std::uint64_t chunk_count() const { return chunks_.size(); }
  std::uint64_t total_bytes() const { return total_bytes_; }
  std::uint64_t spilled_bytes() const { return spilled_bytes_; }

  std::uint64_t chunk_size_bytes(std::uint64_t index) const { return chunks_.at(index).size_bytes; }
  // The chunk in its place in memory, or read into `scratch` (grown when too small; reuse it to bound the memory).
  // The span lives until scratch changes or this is destroyed. kUnavailable when the disk cannot read it back.
  Result<ByteSpan> read(std::uint64_t index, Buffer& scratch) const;
  Status for_each(const std::function<Status(std::uint64_t index, ByteSpan chunk)>& visit) const;
  void clear();

 private:
  struct Chunk {
    Buffer memory;  // empty when it is in the file
    std::uint64_t file_offset = 0;
    std::uint64_t size_bytes = 0;
  };
  Status write_beyond(ByteSpan chunk);

  StagingBudget* budget_;
  FileSystem* files_;
  std::string folder_;
  std::uint64_t bytes_max_;
  std::vector<Chunk> chunks_;
  std::unique_ptr<File> file_;
  std::unique_ptr<std::mutex> reading_;  // the file, which one thread uses at a time
  mutable bool file_failed_ = false;     // once
  std::uint64_t total_bytes_ = 0;
  std::uint64_t spilled_bytes_ = 0;
};

}  // namespace fluvial::store

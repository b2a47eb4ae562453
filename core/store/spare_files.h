// A site's tensor files that no record names any more. The next submission or residual is written into one of them,
// under a name of its own: its blocks and its pages in the kernel are there already. What is in a spare file counts for
// nothing, and a name is never used twice: so old content is never taken for new, whatever crashes.
//
//   open()  -> the file has a name in tensors/; written, synced with its folder, then named by a record
//   wrote() -> once the record is durable
//   retire() -> once the record that let go of it is durable: the file moves to spare/
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/store/file_system.h"

namespace fluvial::store {

// One thread at a time, except failed(). Keeps kSparesMax files, of those alone that this process has written.
class SpareFiles {
 public:
  static constexpr std::size_t kSparesMax = 2;  // as many as the next round writes: p and its chunks

  struct Slot {
    std::shared_ptr<File> file;
    std::uint64_t old_bytes = 0;  // that it holds already
  };
  enum class Size { kLarge, kSmall };  // of those that are there

  SpareFiles(FileSystem& files, std::string tensors, std::string spares);

  // Makes the folder, and removes what an earlier process left in it.
  Status open_folder();
  // tensors/name, to be written from its beginning: a spare file that nobody reads any more, or a new one.
  Result<Slot> open(const std::string& name, Size size);
  // Before the file is synced: what it holds beyond `bytes` goes, unless it is no more than as much again.
  static Status cut(const Slot& slot, std::uint64_t bytes);
  void wrote(const std::string& name, const Slot& slot, std::uint64_t bytes);
  // Somebody reads the file from here on: it is not written while `reader` lives.
  void reads(const std::string& name, const std::shared_ptr<File>& reader);
  // Best effort: a file that stays in tensors/ is swept when the store is opened again.
  void retire(const std::string& name);
  // A file could not be written whole: perhaps the disk is full. The next open() gives all spare files up first. Any
  // thread.
  void failed() { failed_ = true; }

  std::uint64_t reused() const { return reused_; }  // spare files that were written again, so far

 private:
  struct State {
    std::uint64_t bytes = 0;
    std::vector<std::weak_ptr<File>> readers = {};
    bool is_read() const;
  };
  using States = std::map<std::string, State>;
  States::iterator choose(Size size);

  FileSystem& files_;
  std::string tensors_;
  std::string folder_;
  States named_;   // in tensors/, by name
  States spares_;  // in spare/, by the name that they had
  std::atomic<bool> failed_ = false;
  std::uint64_t reused_ = 0;
};

}  // namespace fluvial::store

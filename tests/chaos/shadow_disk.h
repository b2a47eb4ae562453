// The disk of one node under chaos: the real one, that remembers beside it what is durable, and fails when it is told
// to.
//
// In a folder of its own, on the same file system, there is for each file that was opened for writing
//   <inode>             a hard link to it, so that its number is nobody else's
//   <inode>.durable     its content as of the last fsync; absent: it never had one
//   names/<folder>      a line "<inode> <name>" for each name that the folder's last fsync made durable
// from which power_cut.h rebuilds the node's folder once its process has been killed. Folders are durable at once, as
// make_folder() promises. Files that nobody opened through here (certificates, settings) are left alone.
//
// faults.txt in the same folder, while it is there, says how operations fail: "KIND ONE_IN SEED".
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "core/base/rng.h"
#include "core/store/file_system.h"

namespace fluvial::chaos {

enum class DiskFault {
  kIo,     // EIO, of any operation
  kFull,   // ENOSPC, of whatever takes room
  kShort,  // a write stops half-way, with ENOSPC
};
std::string_view disk_fault_name(DiskFault fault);

struct DiskFaults {
  DiskFault kind = DiskFault::kIo;
  std::uint64_t one_in = 1;  // operations of those that it concerns
  std::uint64_t seed = 0;
};
// From here on, or no longer. Any process.
Status set_disk_faults(const std::string& shadow, const std::optional<DiskFaults>& faults);

// Names of files in the shadow folder.
std::string pin_of(const std::string& shadow, ino_t inode);
std::string durable_of(const std::string& shadow, ino_t inode);
std::string names_of(const std::string& shadow, const std::string& folder);
std::string folder_of_names(const std::string& file_name);  // the inverse of the last part

// A folder's durable names.
using DurableNames = std::map<std::string, ino_t>;
DurableNames read_names(const std::string& path);  // nothing: none
Status write_names(store::FileSystem& files, const std::string& path, const DurableNames& names);

class ShadowDisk final : public store::FileSystem {
 public:
  static Result<std::unique_ptr<ShadowDisk>> open(std::string shadow);

  Result<std::unique_ptr<store::File>> open(const std::string& path, store::OpenMode mode) override;
  Result<std::unique_ptr<store::File>> open_unnamed(const std::string& folder) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status remove(const std::string& path) override;
  Result<bool> exists(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& folder) override;
  Status make_folder(const std::string& path) override;
  Status sync_folder(const std::string& path) override;

 private:
  friend class ShadowFile;
  enum class Operation { kRead, kWrite, kSync };
  explicit ShadowDisk(std::string shadow) : shadow_(std::move(shadow)) {}
  // An error when this operation is to fail; `half` is set when half of it is to be done first.
  Status begin(Operation operation, const std::string& path, bool* half = nullptr);
  void touch(ino_t inode, std::uint64_t from, std::uint64_t to);
  void forget(ino_t inode);
  Status keep(ino_t inode, store::File& file);
  Status collect(const DurableNames& before, const DurableNames& now);

  const std::string shadow_;
  store::PosixFileSystem real_;
  std::mutex mutex_;
  // What the next fsync makes durable. A file that this process has not written yet is not in it: then all of it, for
  // whoever was killed before may have left something.
  struct Range {
    std::uint64_t from = std::numeric_limits<std::uint64_t>::max();
    std::uint64_t to = 0;
  };
  std::map<ino_t, Range> dirty_;
  std::optional<DiskFaults> faults_;
  Rng rng_{0};
};

}  // namespace fluvial::chaos

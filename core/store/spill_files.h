// Files without names for what is beyond the memory budget. A file whose update has gone is kept and overwritten by the
// next one: its blocks and its pages in the kernel are there already. Nothing in it outlives the process, so nothing is
// ever synced.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/store/file_system.h"

namespace fluvial::store {

// Thread safe. Never more files than were needed at once; what is not needed for a while close_idle() gives up.
class SpillFiles {
 public:
  struct Counts {
    std::uint64_t opened = 0;  // over its life: new files
    std::uint64_t reused = 0;  // likewise: files that were kept
    std::size_t kept = 0;      // now
  };

  // For one owner, from the beginning of the file on: there may be bytes of an earlier owner. Errors as open_unnamed().
  Result<std::unique_ptr<File>> take(FileSystem& files, const std::string& folder);
  // After the last use. A file that failed is closed instead, by its owner: another one lies elsewhere on the disk.
  void keep(const FileSystem& files, const std::string& folder, std::unique_ptr<File> file);
  bool close_kept();  // true: there were some, so the disk may have room again
  void close_idle();  // those that were kept at the call before, too; to be called now and then
  Counts counts() const;

 private:
  struct Kept {
    const FileSystem* files;
    std::string folder;
    std::unique_ptr<File> file;
    bool idle = false;  // since the last close_idle()
  };
  mutable std::mutex mutex_;
  std::vector<Kept> kept_;
  Counts counts_;
};

}  // namespace fluvial::store

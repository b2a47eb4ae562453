// Small files that must be whole or absent, and key files that nobody else may read. For this room alone.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <utility>

#include "core/base/result.h"

namespace fluvial::identity {

// At most 64 KiB. kNotFound when absent, kUnavailable when it cannot be read, kDataLoss when too large.
Result<std::string> read_small_file(const std::string& path);
// The same, and kFailedPrecondition unless the file is closed to group and others. The caller wipes the text.
Result<std::string> read_private_file(const std::string& path);

// Temporary file beside it, fsync, rename, fsync of the folder: after a crash the old or the new content is there.
Status write_file(const std::string& path, std::string_view content, mode_t mode);

// Makes the folder and its parents, with mode 0700. Its name is durable afterwards, whoever made it.
Status make_private_folder(const std::string& folder);
Status sync_folder(const std::string& folder);  // the names in it are durable
// The same for a folder whose process may have been killed between rename and fsync. A folder that this process may
// not write is left alone: another user made it.
Status settle_folder(const std::string& folder);

// Holds an exclusive lock on a folder for its lifetime; blocks until it has it.
class FolderLock {
 public:
  static Result<FolderLock> take(const std::string& folder);
  FolderLock(FolderLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  FolderLock& operator=(FolderLock&&) = delete;
  ~FolderLock();

 private:
  explicit FolderLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;
};

void wipe_text(std::string& text);

}  // namespace fluvial::identity

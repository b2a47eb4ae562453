// The one seam to the operating system's files. Everything in this room works over it, SQLite included (sqlite_vfs.h),
// so that tests and the simulator can fail any operation and lose what was not fsynced.
//
// Paths are absolute or relative to the working folder, '/' separated. Errors: kNotFound, kAlreadyExists,
// kPermissionDenied, kResourceExhausted (disk full) and kUnavailable (the disk failed), each naming the path. A failed
// fsync is always kUnavailable: what was written before it may be on the disk or not, and a later one does not tell.
// Implementations are thread safe; one File is used by one thread at a time, but read_at() by any number of them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"

namespace fluvial::store {

class File {
 public:
  virtual ~File() = default;
  // Fills `into` and returns its size; fewer bytes only at the end of the file.
  virtual Result<std::size_t> read_at(std::uint64_t offset, MutableByteSpan into) = 0;
  // All or an error (then any part may have been written).
  virtual Status write_at(std::uint64_t offset, ByteSpan bytes) = 0;
  virtual Status truncate(std::uint64_t size_bytes) = 0;
  virtual Result<std::uint64_t> size() = 0;
  virtual Status sync() = 0;       // fsync: content and metadata are on the disk
  virtual Status sync_data() = 0;  // fdatasync: content and size are
  // An exclusive lock on the whole file, among all processes and all Files of this process. False: another holds it.
  virtual Result<bool> try_lock() = 0;
  virtual void unlock() = 0;
};

enum class OpenMode {
  kRead,       // kNotFound when it is not there
  kReadWrite,  // kNotFound when it is not there
  kCreate,     // made when it is not there (mode 0600); content is kept
  kTruncate,   // made anew (mode 0600): what had the name goes, a link too; who has it open keeps what it reads
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  virtual Result<std::unique_ptr<File>> open(const std::string& path, OpenMode mode) = 0;
  // A file without a name in `folder`: it vanishes with the File.
  virtual Result<std::unique_ptr<File>> open_unnamed(const std::string& folder) = 0;
  virtual Status rename(const std::string& from, const std::string& to) = 0;  // replaces `to`
  virtual Status remove(const std::string& path) = 0;                         // a file, or an empty folder
  virtual Result<bool> exists(const std::string& path) = 0;
  virtual Result<std::vector<std::string>> list(const std::string& folder) = 0;  // names, sorted
  virtual Status make_folder(const std::string& path) = 0;  // with its parents (mode 0700); fine when there; durable
  virtual Status sync_folder(const std::string& path) = 0;  // names made, renamed and removed in it are durable
};

// Linux.
class PosixFileSystem final : public FileSystem {
 public:
  Result<std::unique_ptr<File>> open(const std::string& path, OpenMode mode) override;
  Result<std::unique_ptr<File>> open_unnamed(const std::string& folder) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status remove(const std::string& path) override;
  Result<bool> exists(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& folder) override;
  Status make_folder(const std::string& path) override;
  Status sync_folder(const std::string& path) override;
};

std::string join_path(std::string_view folder, std::string_view name);
std::string folder_of(std::string_view path);  // "." when the path has none

// Reads exactly into.size() bytes; kDataLoss when the file ends before.
Status read_exactly(File& file, std::uint64_t offset, MutableByteSpan into, std::string_view path);

// Old content or new, never a part: temporary file (path + ".tmp"), write, fsync, rename, fsync of the folder.
Status write_file_atomically(FileSystem& files, const std::string& path, std::span<const ByteSpan> parts);

// The first half of the above, for several files that share one fsync of their folder: writes and fsyncs path + ".tmp".
Status write_temporary(FileSystem& files, const std::string& path, std::span<const ByteSpan> parts);
std::string temporary_of(const std::string& path);
inline constexpr std::string_view kTemporarySuffix = ".tmp";

// A whole file of at most `size_max` bytes; kInvalidArgument when it is larger.
Result<Buffer> read_file(FileSystem& files, const std::string& path, std::uint64_t size_max);

}  // namespace fluvial::store

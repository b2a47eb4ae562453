#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/store/file_system.h"
#include "core/store/sole.h"

namespace fluvial::store {
namespace {

constexpr std::size_t kTransferBytesMax = std::size_t{1} << 30;  // Linux moves at most 2 GiB in one call

Error system_error(int number, std::string_view what, const std::string& path) {
  Code code = Code::kUnavailable;
  switch (number) {
    case ENOENT:
    case ENOTDIR: code = Code::kNotFound; break;
    case EEXIST:
    case ENOTEMPTY: code = Code::kAlreadyExists; break;
    case EACCES:
    case EPERM:
    case EROFS: code = Code::kPermissionDenied; break;
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE: code = Code::kResourceExhausted; break;
    default: break;
  }
  char text[128] = "";
  return {code, std::string(what) + " " + path + ": " + strerror_r(number, text, sizeof(text))};
}

// After a failed fsync it is unknown what is on the disk, whatever the reason. Even a full disk may have taken a part,
// and the kernel does not write those pages again.
Error sync_error(std::string_view what, const std::string& path) {
  return {Code::kUnavailable, system_error(errno, what, path).message};
}

class PosixFile final : public File, public KnowsOthers {
 public:
  PosixFile(int descriptor, std::string path) : descriptor_(descriptor), path_(std::move(path)) {}
  ~PosixFile() override { ::close(descriptor_); }
  PosixFile(const PosixFile&) = delete;
  PosixFile& operator=(const PosixFile&) = delete;

  Result<std::size_t> read_at(std::uint64_t offset, MutableByteSpan into) override {
    std::size_t done = 0;
    while (done < into.size()) {
      const ssize_t got = ::pread(descriptor_, into.data() + done, std::min(into.size() - done, kTransferBytesMax),
                                  static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return system_error(errno, "reading", path_);
      if (got == 0) break;
      done += static_cast<std::size_t>(got);
    }
    return done;
  }

  Status write_at(std::uint64_t offset, ByteSpan bytes) override {
    std::size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t put = ::pwrite(descriptor_, bytes.data() + done, std::min(bytes.size() - done, kTransferBytesMax),
                                   static_cast<off_t>(offset + done));
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) return system_error(errno, "writing", path_);
      done += static_cast<std::size_t>(put);
    }
    return {};
  }

  Status truncate(std::uint64_t size_bytes) override {
    if (::ftruncate(descriptor_, static_cast<off_t>(size_bytes)) != 0) return system_error(errno, "cutting", path_);
    return {};
  }

  Result<std::uint64_t> size() override {
    struct stat status{};
    if (::fstat(descriptor_, &status) != 0) return system_error(errno, "the size of", path_);
    return static_cast<std::uint64_t>(status.st_size);
  }

  Status sync() override {
    if (::fsync(descriptor_) != 0) return sync_error("fsync of", path_);
    return {};
  }
  Status sync_data() override {
    if (::fdatasync(descriptor_) != 0) return sync_error("fdatasync of", path_);
    return {};
  }

  // Locks of the open file description: they exclude other Files of this process, and SQLite's own locks elsewhere.
  Result<bool> try_lock() override {
    if (set_lock(F_WRLCK) == 0) return true;
    if (errno == EAGAIN || errno == EACCES) return false;
    return system_error(errno, "locking", path_);
  }
  void unlock() override { static_cast<void>(set_lock(F_UNLCK)); }

  // The kernel grants a write lease only on a file that nobody else has open; a mapping holds its file open. Who opens
  // it before the lease is given back waits for that, and the signal that we would get is one that does nothing.
  bool is_sole() override {
    struct stat status{};
    if (::fstat(descriptor_, &status) != 0 || status.st_nlink != 1) return false;
    if (::fcntl(descriptor_, F_SETSIG, SIGURG) != 0) return false;
    if (::fcntl(descriptor_, F_SETLEASE, F_WRLCK) != 0) return false;
    return ::fcntl(descriptor_, F_SETLEASE, F_UNLCK) == 0;
  }

 private:
  int set_lock(short type) {
    struct flock lock{};
    lock.l_type = type;
    lock.l_whence = SEEK_SET;
    return ::fcntl(descriptor_, F_OFD_SETLK, &lock);
  }

  int descriptor_;
  std::string path_;
};

Status sync_path(const std::string& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return system_error(errno, "opening", folder);
  const PosixFile file(descriptor, folder);
  if (::fsync(descriptor) != 0) return sync_error("fsync of", folder);
  return {};
}

// Makes the name of an existing folder durable: its maker may have been killed before the fsync. A process that may not
// open the parent folder did not make the name either.
Status sync_name(const std::string& path) {
  Status synced = sync_path(folder_of(path));
  if (!synced.ok() && synced.error().code == Code::kPermissionDenied) return {};
  return synced;
}

}  // namespace

Result<std::unique_ptr<File>> PosixFileSystem::open(const std::string& path, OpenMode mode) {
  int flags = O_CLOEXEC;
  switch (mode) {
    case OpenMode::kRead: flags |= O_RDONLY; break;
    case OpenMode::kReadWrite: flags |= O_RDWR; break;
    case OpenMode::kCreate: flags |= O_RDWR | O_CREAT; break;
    case OpenMode::kTruncate:
      // Never into a link or a file that another user put there under the name that we are about to write.
      if (::unlink(path.c_str()) != 0 && errno != ENOENT) return system_error(errno, "replacing", path);
      flags |= O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW;
      break;
  }
  int descriptor = -1;
  do descriptor = ::open(path.c_str(), flags, 0600);
  while (descriptor < 0 && errno == EINTR);
  if (descriptor < 0) return system_error(errno, "opening", path);
  return std::unique_ptr<File>(std::make_unique<PosixFile>(descriptor, path));
}

Result<std::unique_ptr<File>> PosixFileSystem::open_unnamed(const std::string& folder) {
  std::string path = join_path(folder, "unnamed-XXXXXX");
  const int descriptor = ::mkostemp(path.data(), O_CLOEXEC);
  if (descriptor < 0) return system_error(errno, "opening a temporary file in", folder);
  auto file = std::make_unique<PosixFile>(descriptor, path);
  if (::unlink(path.c_str()) != 0) return system_error(errno, "unlinking", path);
  return std::unique_ptr<File>(std::move(file));
}

Status PosixFileSystem::rename(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) return system_error(errno, "renaming to " + to + ":", from);
  return {};
}

Status PosixFileSystem::remove(const std::string& path) {
  if (std::remove(path.c_str()) != 0) return system_error(errno, "removing", path);
  return {};
}

Result<bool> PosixFileSystem::exists(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) == 0) return true;
  if (errno == ENOENT || errno == ENOTDIR) return false;
  return system_error(errno, "looking for", path);
}

Result<std::vector<std::string>> PosixFileSystem::list(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(folder.c_str()), &::closedir);
  if (!stream) return system_error(errno, "listing", folder);
  std::vector<std::string> names;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(stream.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) return system_error(errno, "listing", folder);
  std::sort(names.begin(), names.end());
  return names;
}

Status PosixFileSystem::make_folder(const std::string& path) {
  if (path.empty() || path == "/" || path == ".") return {};
  const std::string parent = folder_of(path);
  if (::mkdir(path.c_str(), 0700) == 0) {
    FLUVIAL_TRY(sync_path(parent));
    return sync_name(parent);  // it existed: perhaps a predecessor was killed between the two
  }
  if (errno == ENOENT) {
    FLUVIAL_TRY(make_folder(parent));
    return ::mkdir(path.c_str(), 0700) == 0 ? sync_path(parent) : system_error(errno, "making", path);
  }
  const int number = errno;
  struct stat status{};
  if (number == EEXIST && ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) return sync_name(path);
  return system_error(number, "making", path);
}

Status PosixFileSystem::sync_folder(const std::string& path) { return sync_path(path); }

}  // namespace fluvial::store

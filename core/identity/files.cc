#include "core/identity/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/crypto.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

namespace fluvial::identity {
namespace {

constexpr std::size_t kFileBytesMax = 64 * 1024;

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  int get() const { return value_; }
  bool open() const { return value_ >= 0; }

 private:
  int value_;
};

Error file_error(std::string_view verb, const std::string& path) {
  const int number = errno;
  const Code code = number == ENOENT                      ? Code::kNotFound
                    : number == EACCES || number == EPERM ? Code::kPermissionDenied
                                                          : Code::kUnavailable;
  return {code, fmt::format("cannot {} {}: {}", verb, path, std::generic_category().message(number))};
}

Result<std::string> read_all(int descriptor, const std::string& path) {
  std::string content;
  content.resize(kFileBytesMax + 1);
  std::size_t size = 0;
  while (size < content.size()) {
    const ssize_t count = ::read(descriptor, content.data() + size, content.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const Error error = file_error("read", path);
      wipe_text(content);
      return error;
    }
    if (count == 0) break;
    size += static_cast<std::size_t>(count);
  }
  if (size > kFileBytesMax) {
    wipe_text(content);
    return Error{Code::kDataLoss, fmt::format("{} is larger than {} bytes", path, kFileBytesMax)};
  }
  content.resize(size);
  return content;
}

Result<std::string> read_file(const std::string& path, bool must_be_private) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.open()) return file_error("open", path);
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) return file_error("examine", path);
  if (!S_ISREG(status.st_mode)) return Error{Code::kInvalidArgument, path + " is not a regular file"};
  if (must_be_private && (status.st_mode & 077) != 0) {
    return Error{Code::kFailedPrecondition,
                 fmt::format("key file {} has mode {:04o}: group and others must have no access (chmod 600)", path,
                             status.st_mode & 07777)};
  }
  return read_all(file.get(), path);
}

std::string folder_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

Status write_and_sync(int descriptor, std::string_view content, const std::string& path) {
  while (!content.empty()) {
    const ssize_t count = ::write(descriptor, content.data(), content.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return file_error("write", path);
    content.remove_prefix(static_cast<std::size_t>(count));
  }
  if (::fsync(descriptor) != 0) return file_error("sync", path);
  return {};
}

}  // namespace

Status sync_folder(const std::string& folder) {
  const Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened.open() || ::fsync(opened.get()) != 0) return file_error("sync folder", folder);
  return {};
}

Status settle_folder(const std::string& folder) {
  return ::access(folder.c_str(), W_OK) == 0 ? sync_folder(folder) : Status();
}

Result<std::string> read_small_file(const std::string& path) { return read_file(path, false); }
Result<std::string> read_private_file(const std::string& path) { return read_file(path, true); }

Status write_file(const std::string& path, std::string_view content, mode_t mode) {
  // One fixed name leaves at most one piece of litter after a crash; unlink + O_EXCL writes into no file of others.
  const std::string temporary = path + ".tmp";
  if (::unlink(temporary.c_str()) != 0 && errno != ENOENT) return file_error("remove", temporary);
  Status written;
  {
    const Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
    if (!file.open()) return file_error("create", temporary);
    written = write_and_sync(file.get(), content, temporary);
  }
  if (written.ok() && ::rename(temporary.c_str(), path.c_str()) != 0) written = file_error("rename into place", path);
  if (!written.ok()) {
    ::unlink(temporary.c_str());
    return written;
  }
  return sync_folder(folder_of(path));
}

Status make_private_folder(const std::string& folder) {
  std::error_code failure;
  std::filesystem::create_directories(folder_of(folder), failure);
  if (failure) return Error{Code::kUnavailable, "cannot make the folder of " + folder + ": " + failure.message()};
  const bool made = ::mkdir(folder.c_str(), 0700) == 0;
  if (!made && errno != EEXIST) return file_error("make folder", folder);
  if (!made && !std::filesystem::is_directory(folder, failure)) {
    return Error{Code::kInvalidArgument, folder + " is not a folder"};
  }
  // Even if the folder existed: its maker may have been killed before this fsync. A process that may not open the
  // parent folder did not make it.
  const Status synced = sync_folder(folder_of(folder));
  return !made && !synced.ok() && synced.error().code == Code::kPermissionDenied ? Status() : synced;
}

Result<FolderLock> FolderLock::take(const std::string& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return file_error("open folder", folder);
  FolderLock lock(descriptor);
  while (::flock(descriptor, LOCK_EX) != 0) {
    if (errno != EINTR) return file_error("lock folder", folder);
  }
  return lock;
}

FolderLock::~FolderLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void wipe_text(std::string& text) {
  OPENSSL_cleanse(text.data(), text.size());
  text.clear();
}

}  // namespace fluvial::identity

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "cli/doctor/collect.h"
#include "core/store/journal_copy.h"

namespace fluvial::cli::doctor {
namespace {

constexpr std::size_t kPieceBytes = 1 << 20;
constexpr std::size_t kRecordBytes = 4096;
constexpr int kFsyncs = 16;
constexpr Duration kMeasuredMax = std::chrono::seconds(3);  // for each of the two parts
constexpr std::size_t kFilesLookedAt = 10'000;
constexpr std::uint64_t kJournalCheckedMax = 256 << 20;

Error system_error(const std::string& what) {
  return {Code::kUnavailable, fmt::format("{}: {}", what, std::strerror(errno))};
}

// linux/magic.h
std::string name_of_file_system(long type) {
  switch (static_cast<unsigned long>(type)) {
    case 0xEF53: return "ext4";
    case 0x58465342: return "xfs";
    case 0x9123683E: return "btrfs";
    case 0x2FC12FC1: return "zfs";
    case 0x01021994: return "tmpfs";
    case 0x858458f6: return "ramfs";
    case 0x794c7630: return "overlay";
    case 0x6969: return "nfs";
    case 0xFF534D42:
    case 0xFE534D42: return "cifs";
    case 0x65735546: return "fuse";
    default: return fmt::format("file system {:#x}", static_cast<unsigned long>(type));
  }
}

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

double seconds_between(TimePoint from, TimePoint to) { return std::chrono::duration<double>(to - from).count(); }

Status write_all(int descriptor, const std::vector<char>& bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::write(descriptor, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return system_error("writing fails");
    done += static_cast<std::size_t>(count);
  }
  return {};
}

// On a file of the folder that has no name any more: whatever ends this process, nothing stays.
Result<DiskSpeed> measure(const std::string& folder) {
  std::string path = folder + "/.fluvial-doctor-XXXXXX";
  const File file(::mkostemp(path.data(), O_CLOEXEC));
  if (file.get() < 0) return system_error("a file cannot be made in it");
  ::unlink(path.c_str());
  const SystemClock clock;
  DiskSpeed speed;
  std::vector<char> piece(kPieceBytes);
  for (std::size_t i = 0; i < piece.size(); ++i) piece[i] = static_cast<char>(i * 2654435761U >> 13);  // not all alike
  const TimePoint begun = clock.now();
  std::uint64_t written = 0;
  while (written < kMeasuredBytes && clock.now() - begun < kMeasuredMax) {
    FLUVIAL_TRY(write_all(file.get(), piece));
    written += piece.size();
  }
  if (::fdatasync(file.get()) != 0) return system_error("fdatasync fails");
  speed.write_bytes_per_s = static_cast<double>(written) / std::max(1e-9, seconds_between(begun, clock.now()));

  piece.resize(kRecordBytes);
  std::vector<double> times;
  const TimePoint first = clock.now();
  for (int i = 0; i < kFsyncs && clock.now() - first < kMeasuredMax; ++i) {
    FLUVIAL_TRY(write_all(file.get(), piece));
    const TimePoint before = clock.now();
    if (::fsync(file.get()) != 0) return system_error("fsync fails");
    times.push_back(seconds_between(before, clock.now()));
  }
  std::sort(times.begin(), times.end());
  speed.fsync_median_s = times[times.size() / 2];
  speed.fsync_max_s = times.back();
  return speed;
}

struct Version {
  off_t size = -1;
  timespec changed{};
  bool operator==(const Version& other) const {
    return size == other.size && changed.tv_sec == other.changed.tv_sec && changed.tv_nsec == other.changed.tv_nsec;
  }
};

Version version_of(const std::string& path) {
  struct stat about{};
  return ::stat(path.c_str(), &about) == 0 ? Version{about.st_size, about.st_mtim} : Version{};
}

// A copy is opened, never the journal itself: SQLite would bring it up to date.
Status check_copy(const std::string& path) {
  std::string folder = (std::filesystem::temp_directory_path() / "fluvial-doctor-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) return system_error("no temporary folder for a copy");
  const std::string copy = folder + "/journal.sqlite";
  Status checked;
  std::error_code error;
  const Version before[] = {version_of(path), version_of(path + "-wal")};
  std::filesystem::copy_file(path, copy, error);
  if (!error && before[1].size >= 0) std::filesystem::copy_file(path + "-wal", copy + "-wal", error);
  const bool changed = version_of(path) != before[0] || version_of(path + "-wal") != before[1];
  if (error || changed) {
    checked = Error{Code::kNotFound, error ? "not checked: " + error.message() : "not checked: it is being written"};
  } else {
    store::PosixFileSystem files;
    const auto content = store::read_journal_copy(files, copy);
    if (!content.ok()) {  // of the journal, not of a copy that is gone by then
      Error why = content.error();
      if (const std::size_t at = why.message.find(copy); at != std::string::npos) {
        why.message.replace(at, copy.size(), path);
      }
      checked = why;
    }
  }
  std::filesystem::remove_all(folder, error);
  return checked;
}

}  // namespace

FolderFacts collect_folder(const std::string& path) {
  FolderFacts facts{.path = path, .user = user_name(::geteuid())};
  struct stat about{};
  if (::stat(path.c_str(), &about) != 0) return facts;
  facts.exists = true;
  facts.is_folder = S_ISDIR(about.st_mode);
  facts.mode = about.st_mode & 07777;
  facts.owner = user_name(about.st_uid);
  facts.writable = ::faccessat(AT_FDCWD, path.c_str(), W_OK | X_OK, AT_EACCESS) == 0;
  facts.read_only = !facts.writable && errno == EROFS;
  struct statfs type{};
  if (::statfs(path.c_str(), &type) == 0) facts.file_system = name_of_file_system(static_cast<long>(type.f_type));
  struct statvfs room{};
  if (::statvfs(path.c_str(), &room) == 0) {
    facts.free_bytes = static_cast<std::uint64_t>(room.f_bavail) * room.f_frsize;
    facts.free_files = room.f_favail;
  }
  if (facts.is_folder && facts.writable && facts.free_bytes > 2 * kMeasuredBytes) {
    facts.speed = measure(path);
  } else {
    facts.speed = Error{Code::kNotFound, "its speed was not measured: no room for that"};
  }
  return facts;
}

// Models of a coordinator, tensors of a site.
ModelFacts collect_models(const std::string& folder) {
  ModelFacts facts;
  if (folder.empty()) return facts;
  std::size_t looked_at = 0;
  for (const char* part : {"models", "state"}) {
    std::error_code error;
    std::filesystem::recursive_directory_iterator files(folder + "/" + part, error);
    for (; !error && files != std::filesystem::recursive_directory_iterator() && looked_at < kFilesLookedAt;
         files.increment(error), ++looked_at) {
      std::error_code ignored;
      const std::string name = files->path().filename().string();
      if (name.starts_with("site.db")) continue;
      facts.has_trained = facts.has_trained || name.ends_with(".trained.safetensors");
      const std::uintmax_t size = files->is_regular_file(ignored) ? files->file_size(ignored) : 0;
      if (!ignored) facts.largest_bytes = std::max<std::uint64_t>(facts.largest_bytes, size);
    }
  }
  return facts;
}

JournalFacts collect_journal(const std::string& path, bool held) {
  JournalFacts facts{.path = path, .held = held};
  struct stat about{};
  facts.exists = ::stat(path.c_str(), &about) == 0;
  if (!facts.exists) return facts;
  facts.bytes = static_cast<std::uint64_t>(about.st_size);
  if (held) return facts;
  if (facts.bytes > kJournalCheckedMax) {
    facts.checked = Error{Code::kNotFound, "not checked: it is large; fluvial backup reads all of it"};
  } else {
    facts.checked = check_copy(path);
  }
  return facts;
}

}  // namespace fluvial::cli::doctor

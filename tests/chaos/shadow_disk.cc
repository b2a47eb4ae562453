#include "tests/chaos/shadow_disk.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <utility>

#include "core/store/sole.h"

namespace fluvial::chaos {
namespace {

constexpr const char* kFaultsFile = "faults.txt";
constexpr std::array kFaultKinds = {DiskFault::kIo, DiskFault::kFull, DiskFault::kShort};
constexpr std::size_t kPieceBytes = 1 << 20;

std::optional<ino_t> inode_of(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  return status.st_ino;
}

std::optional<DiskFaults> read_faults(const std::string& shadow) {
  const std::string path = store::join_path(shadow, kFaultsFile);
  if (::access(path.c_str(), F_OK) != 0) return std::nullopt;
  std::ifstream file(path);
  std::string kind;
  DiskFaults faults;
  if (!(file >> kind >> faults.one_in >> faults.seed)) return std::nullopt;  // gone meanwhile
  for (const DiskFault known : kFaultKinds) {
    if (kind == disk_fault_name(known)) faults.kind = known;
  }
  return faults;
}

}  // namespace

std::string_view disk_fault_name(DiskFault fault) {
  switch (fault) {
    case DiskFault::kIo: return "io";
    case DiskFault::kFull: return "full";
    case DiskFault::kShort: return "short";
  }
  return "unknown";
}

Status set_disk_faults(const std::string& shadow, const std::optional<DiskFaults>& faults) {
  store::PosixFileSystem files;
  const std::string path = store::join_path(shadow, kFaultsFile);
  if (!faults) {
    const Status removed = files.remove(path);
    return removed.ok() || removed.error().code == Code::kNotFound ? Status() : removed;
  }
  const std::string text = fmt::format("{} {} {}\n", disk_fault_name(faults->kind), faults->one_in, faults->seed);
  const std::array<ByteSpan, 1> parts = {as_byte_span(text)};
  return store::write_file_atomically(files, path, parts);
}

std::string pin_of(const std::string& shadow, ino_t inode) { return store::join_path(shadow, std::to_string(inode)); }
std::string durable_of(const std::string& shadow, ino_t inode) { return pin_of(shadow, inode) + ".durable"; }

std::string names_of(const std::string& shadow, const std::string& folder) {
  std::string name = folder;
  std::ranges::replace(name, '/', '%');
  return store::join_path(shadow + "/names", name);
}
std::string folder_of_names(const std::string& file_name) {
  std::string folder = file_name;
  std::ranges::replace(folder, '%', '/');
  return folder;
}

DurableNames read_names(const std::string& path) {
  DurableNames names;
  std::ifstream file(path);
  ino_t inode = 0;
  std::string name;
  while (file >> inode >> name) names[name] = inode;
  return names;
}

Status write_names(store::FileSystem& files, const std::string& path, const DurableNames& names) {
  std::string text;
  for (const auto& [name, inode] : names) text += fmt::format("{} {}\n", inode, name);
  const std::array<ByteSpan, 1> parts = {as_byte_span(text)};
  return store::write_file_atomically(files, path, parts);
}

class ShadowFile final : public store::File, public store::KnowsOthers {
 public:
  // `inode`: none for a file without a name, which no power cut leaves.
  ShadowFile(ShadowDisk& disk, std::unique_ptr<store::File> file, std::string path, std::optional<ino_t> inode)
      : disk_(disk), file_(std::move(file)), path_(std::move(path)), inode_(inode) {}

  Result<std::size_t> read_at(std::uint64_t offset, MutableByteSpan into) override {
    FLUVIAL_TRY(disk_.begin(ShadowDisk::Operation::kRead, path_));
    return file_->read_at(offset, into);
  }
  Status write_at(std::uint64_t offset, ByteSpan bytes) override {
    bool half = false;
    const Status begun = disk_.begin(ShadowDisk::Operation::kWrite, path_, &half);
    if (!begun.ok() && !half) return begun;
    if (half) bytes = bytes.first(bytes.size() / 2);
    if (inode_) disk_.touch(*inode_, offset, offset + bytes.size());
    FLUVIAL_TRY(file_->write_at(offset, bytes));
    return begun;
  }
  Status truncate(std::uint64_t size_bytes) override {
    FLUVIAL_TRY(disk_.begin(ShadowDisk::Operation::kWrite, path_));
    if (inode_) disk_.touch(*inode_, size_bytes, size_bytes);
    return file_->truncate(size_bytes);
  }
  Result<std::uint64_t> size() override { return file_->size(); }
  Status sync() override {
    if (const Status begun = disk_.begin(ShadowDisk::Operation::kSync, path_); !begun.ok()) {
      if (inode_) disk_.forget(*inode_);  // as Linux does: a later one does not try these pages again
      return begun;
    }
    return inode_ ? disk_.keep(*inode_, *file_) : Status();
  }
  Status sync_data() override { return sync(); }
  Result<bool> try_lock() override { return file_->try_lock(); }
  void unlock() override { file_->unlock(); }
  bool is_sole() override { return store::is_sole(*file_); }

 private:
  ShadowDisk& disk_;
  std::unique_ptr<store::File> file_;
  std::string path_;
  std::optional<ino_t> inode_;
};

Result<std::unique_ptr<ShadowDisk>> ShadowDisk::open(std::string shadow) {
  std::unique_ptr<ShadowDisk> disk(new ShadowDisk(std::move(shadow)));
  FLUVIAL_TRY(disk->real_.make_folder(store::join_path(disk->shadow_, "names")));
  return disk;
}

Status ShadowDisk::begin(Operation operation, const std::string& path, bool* half) {
  const std::lock_guard lock(mutex_);
  const std::optional<DiskFaults> faults = read_faults(shadow_);
  if (faults && (!faults_ || faults_->seed != faults->seed)) rng_ = Rng(faults->seed);
  faults_ = faults;
  if (!faults_) return {};
  const bool writes = operation != Operation::kRead;
  if (!writes && faults_->kind != DiskFault::kIo) return {};
  if (rng_.below(faults_->one_in) != 0) return {};
  if (operation == Operation::kSync) return Error{Code::kUnavailable, "fsync of " + path + ": chaos"};
  if (faults_->kind == DiskFault::kIo) return Error{Code::kUnavailable, path + ": input/output error of chaos"};
  if (half != nullptr) *half = faults_->kind == DiskFault::kShort;
  return Error{Code::kResourceExhausted, path + ": no space left, says chaos"};
}

void ShadowDisk::touch(ino_t inode, std::uint64_t from, std::uint64_t to) {
  const std::lock_guard lock(mutex_);
  const auto known = dirty_.find(inode);
  if (known == dirty_.end()) return;  // all of it
  Range& range = known->second;
  range.from = std::min(range.from, from);
  range.to = std::max(range.to, to);
}

void ShadowDisk::forget(ino_t inode) {
  const std::lock_guard lock(mutex_);
  dirty_[inode] = {};
}

Status ShadowDisk::keep(ino_t inode, store::File& file) {
  const std::lock_guard lock(mutex_);
  FLUVIAL_ASSIGN(const std::uint64_t size, file.size());
  const auto known = dirty_.find(inode);
  const Range range = known == dirty_.end() ? Range{0, size} : known->second;
  FLUVIAL_ASSIGN(const auto durable, real_.open(durable_of(shadow_, inode), store::OpenMode::kCreate));
  Buffer piece(kPieceBytes);
  for (std::uint64_t at = range.from; at < std::min(range.to, size);) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(kPieceBytes, std::min(range.to, size) - at));
    FLUVIAL_ASSIGN(const std::size_t got, file.read_at(at, piece.span().first(count)));
    FLUVIAL_TRY(durable->write_at(at, piece.span().first(got)));
    at += count;
  }
  dirty_[inode] = {};
  return durable->truncate(size);
}

Result<std::unique_ptr<store::File>> ShadowDisk::open(const std::string& path, store::OpenMode mode) {
  const bool makes = mode == store::OpenMode::kCreate || mode == store::OpenMode::kTruncate;
  FLUVIAL_TRY(begin(makes ? Operation::kWrite : Operation::kRead, path));
  FLUVIAL_ASSIGN(std::unique_ptr<store::File> file, real_.open(path, mode));
  std::optional<ino_t> inode;
  if (mode != store::OpenMode::kRead) inode = inode_of(path);
  if (inode) {
    const std::string pin = pin_of(shadow_, *inode);
    if (::link(path.c_str(), pin.c_str()) != 0 && errno != EEXIST) {
      return Error{Code::kInternal, fmt::format("chaos cannot link {} to {}: errno {}", path, pin, errno)};
    }
    if (mode == store::OpenMode::kTruncate) touch(*inode, 0, 0);
  }
  return std::unique_ptr<store::File>(std::make_unique<ShadowFile>(*this, std::move(file), path, inode));
}

Result<std::unique_ptr<store::File>> ShadowDisk::open_unnamed(const std::string& folder) {
  FLUVIAL_TRY(begin(Operation::kWrite, folder));
  FLUVIAL_ASSIGN(std::unique_ptr<store::File> file, real_.open_unnamed(folder));
  return std::unique_ptr<store::File>(std::make_unique<ShadowFile>(*this, std::move(file), folder, std::nullopt));
}

Status ShadowDisk::rename(const std::string& from, const std::string& to) {
  FLUVIAL_TRY(begin(Operation::kWrite, from));
  return real_.rename(from, to);
}
Status ShadowDisk::remove(const std::string& path) {
  FLUVIAL_TRY(begin(Operation::kRead, path));  // takes no room
  return real_.remove(path);
}
Result<bool> ShadowDisk::exists(const std::string& path) {
  FLUVIAL_TRY(begin(Operation::kRead, path));
  return real_.exists(path);
}
Result<std::vector<std::string>> ShadowDisk::list(const std::string& folder) {
  FLUVIAL_TRY(begin(Operation::kRead, folder));
  return real_.list(folder);
}
Status ShadowDisk::make_folder(const std::string& path) {
  FLUVIAL_TRY(begin(Operation::kWrite, path));
  return real_.make_folder(path);
}

Status ShadowDisk::sync_folder(const std::string& path) {
  FLUVIAL_TRY(begin(Operation::kSync, path));
  const std::lock_guard lock(mutex_);
  DurableNames now;
  FLUVIAL_ASSIGN(const std::vector<std::string> names, real_.list(path));
  for (const std::string& name : names) {
    const auto inode = inode_of(store::join_path(path, name));
    if (inode && ::access(pin_of(shadow_, *inode).c_str(), F_OK) == 0) now[name] = *inode;
  }
  const std::string kept = names_of(shadow_, path);
  const DurableNames before = read_names(kept);
  FLUVIAL_TRY(write_names(real_, kept, now));
  return collect(before, now);
}

// What has neither a name nor a durable one any more.
Status ShadowDisk::collect(const DurableNames& before, const DurableNames& now) {
  for (const auto& [name, inode] : before) {
    const bool named = std::ranges::any_of(now, [&](const auto& entry) { return entry.second == inode; });
    struct stat status{};
    const std::string pin = pin_of(shadow_, inode);
    if (named || ::stat(pin.c_str(), &status) != 0 || status.st_nlink > 1) continue;
    dirty_.erase(inode);
    ::unlink(durable_of(shadow_, inode).c_str());
    ::unlink(pin.c_str());
  }
  return {};
}

}  // namespace fluvial::chaos

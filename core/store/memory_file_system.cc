#include "core/store/memory_file_system.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "core/store/sole.h"

namespace fluvial::store {
namespace {

constexpr std::size_t kSectorBytes = 512;

struct Inode {
  std::vector<std::byte> content;
  std::vector<std::byte> durable;  // as last fsynced
  std::size_t dirty_from = 0;      // what the next fsync makes durable
  std::size_t dirty_to = 0;
  const void* locked_by = nullptr;
  std::size_t files = 0;  // that have it open

  void touch(std::size_t from, std::size_t to) {
    dirty_from = dirty_to == 0 ? from : std::min(dirty_from, from);
    dirty_to = std::max(dirty_to, to);
  }
  void resize(std::size_t size_bytes) {
    touch(std::min(size_bytes, content.size()), std::max(size_bytes, content.size()));
    content.resize(size_bytes);
  }
  void sync() {
    durable.resize(content.size());
    const std::size_t to = std::min(dirty_to, content.size());
    if (dirty_from < to) std::memcpy(durable.data() + dirty_from, content.data() + dirty_from, to - dirty_from);
    forget_dirty();
  }
  void forget_dirty() { dirty_from = dirty_to = 0; }
};
using Names = std::map<std::string, std::shared_ptr<Inode>>;

std::vector<std::byte> tear(const Inode& inode, Rng& rng) {
  const bool longer = rng.below(2) == 1;
  std::vector<std::byte> torn(longer ? inode.content.size() : inode.durable.size());
  for (std::size_t from = 0; from < torn.size(); from += kSectorBytes) {
    const bool newer = rng.below(2) == 1;
    const std::vector<std::byte>& source = newer ? inode.content : inode.durable;
    const std::size_t end = std::min({from + kSectorBytes, torn.size(), source.size()});
    if (end > from) std::copy(source.begin() + from, source.begin() + end, torn.begin() + from);
  }
  return torn;
}

}  // namespace

struct MemoryFileSystem::State {
  std::mutex mutex;
  Names names;
  Names durable_names;
  std::set<std::string> folders;
  std::uint64_t operations = 0;
  std::uint64_t generation = 0;  // of the machine: files of an older one are dead
  std::optional<std::uint64_t> fault_operation;
  Fault fault = Fault::kIo;
  bool crashed = false;

  // Counts one operation. An error when it is to fail; `half` is set for a short write.
  Status begin(const std::string& path, bool* half = nullptr) {
    const std::uint64_t now = operations++;
    if (crashed) return Error{Code::kUnavailable, path + ": the machine is down"};
    if (fault_operation != now) return {};
    fault_operation.reset();
    switch (fault) {
      case Fault::kIo: return Error{Code::kUnavailable, path + ": input/output error"};
      case Fault::kCrash: crashed = true; return Error{Code::kUnavailable, path + ": the machine is down"};
      case Fault::kShortWrite:
        if (half != nullptr) *half = true;
        return Error{Code::kResourceExhausted, path + ": no space left on device"};
      case Fault::kNoSpace: return Error{Code::kResourceExhausted, path + ": no space left on device"};
    }
    return {};
  }

  Status require_folder(const std::string& path) const {
    if (folders.contains(folder_of(path))) return {};
    return Error{Code::kNotFound, "opening " + path + ": no such folder"};
  }
};

namespace {

class MemoryFile final : public File, public KnowsOthers {
 public:
  MemoryFile(std::shared_ptr<MemoryFileSystem::State> state, std::shared_ptr<Inode> inode, std::string path)
      : state_(std::move(state)), inode_(std::move(inode)), path_(std::move(path)), generation_(state_->generation) {
    ++inode_->files;  // under the mutex
  }
  ~MemoryFile() override {
    unlock();
    const std::lock_guard lock(state_->mutex);
    --inode_->files;
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  Result<std::size_t> read_at(std::uint64_t offset, MutableByteSpan into) override {
    const std::lock_guard lock(state_->mutex);
    FLUVIAL_TRY(begin());
    const std::size_t size = inode_->content.size();
    if (offset >= size) return std::size_t{0};
    const std::size_t count = std::min<std::size_t>(into.size(), size - offset);
    if (count > 0) std::memcpy(into.data(), inode_->content.data() + offset, count);
    return count;
  }

  Status write_at(std::uint64_t offset, ByteSpan bytes) override {
    const std::lock_guard lock(state_->mutex);
    bool half = false;
    const Status status = begin(&half);
    if (!status.ok() && !half) return status;
    if (half) bytes = bytes.first(bytes.size() / 2);
    if (!bytes.empty()) {
      if (offset + bytes.size() > inode_->content.size()) inode_->resize(offset + bytes.size());
      inode_->touch(offset, offset + bytes.size());
      std::memcpy(inode_->content.data() + offset, bytes.data(), bytes.size());
    }
    return status;
  }

  Status truncate(std::uint64_t size_bytes) override {
    const std::lock_guard lock(state_->mutex);
    FLUVIAL_TRY(begin());
    inode_->resize(size_bytes);
    return {};
  }

  Result<std::uint64_t> size() override {
    const std::lock_guard lock(state_->mutex);
    FLUVIAL_TRY(begin());
    return std::uint64_t{inode_->content.size()};
  }

  Status sync() override {
    const std::lock_guard lock(state_->mutex);
    if (const Status begun = begin(); !begun.ok()) {
      inode_->forget_dirty();
      return Error{Code::kUnavailable, begun.error().message};
    }
    inode_->sync();
    return {};
  }
  Status sync_data() override { return sync(); }

  Result<bool> try_lock() override {
    const std::lock_guard lock(state_->mutex);
    FLUVIAL_TRY(begin());
    if (inode_->locked_by != nullptr && inode_->locked_by != this) return false;
    inode_->locked_by = this;
    return true;
  }
  void unlock() override {
    const std::lock_guard lock(state_->mutex);
    if (inode_->locked_by == this) inode_->locked_by = nullptr;
  }
  bool is_sole() override {
    const std::lock_guard lock(state_->mutex);
    return inode_->files == 1;
  }

 private:
  Status begin(bool* half = nullptr) {
    if (generation_ != state_->generation) return Error{Code::kUnavailable, path_ + ": opened before the restart"};
    return state_->begin(path_, half);
  }

  std::shared_ptr<MemoryFileSystem::State> state_;
  std::shared_ptr<Inode> inode_;
  std::string path_;
  std::uint64_t generation_;
};

}  // namespace

MemoryFileSystem::MemoryFileSystem() : state_(std::make_shared<State>()) { state_->folders = {"/", "."}; }
MemoryFileSystem::~MemoryFileSystem() = default;

std::uint64_t MemoryFileSystem::operations() const {
  const std::lock_guard lock(state_->mutex);
  return state_->operations;
}

void MemoryFileSystem::fail_at(std::uint64_t operations_from_now, Fault fault) {
  const std::lock_guard lock(state_->mutex);
  state_->fault_operation = state_->operations + operations_from_now;
  state_->fault = fault;
}

void MemoryFileSystem::clear_fault() {
  const std::lock_guard lock(state_->mutex);
  state_->fault_operation.reset();
}

bool MemoryFileSystem::crashed() const {
  const std::lock_guard lock(state_->mutex);
  return state_->crashed;
}

bool MemoryFileSystem::is_durable(const std::string& path) const {
  const std::lock_guard lock(state_->mutex);
  const auto now = state_->names.find(path);
  if (now == state_->names.end()) return !state_->durable_names.contains(path);
  const auto durable = state_->durable_names.find(path);
  return durable != state_->durable_names.end() && durable->second == now->second &&
         now->second->content == now->second->durable;
}

std::unique_ptr<MemoryFileSystem> MemoryFileSystem::after_power_cut() const {
  auto left = std::make_unique<MemoryFileSystem>();
  const std::lock_guard lock(state_->mutex);
  left->state_->folders = state_->folders;
  for (const auto& [path, inode] : state_->durable_names) {
    auto copy = std::make_shared<Inode>();
    copy->content = copy->durable = inode->durable;
    left->state_->names[path] = left->state_->durable_names[path] = copy;
  }
  return left;
}

void MemoryFileSystem::restart(Unsynced unsynced, std::uint64_t seed) {
  const std::lock_guard lock(state_->mutex);
  Rng rng(seed);
  const auto keep = [&] { return unsynced == Unsynced::kTorn && rng.below(2) == 1; };
  state_->crashed = false;
  state_->fault_operation.reset();
  ++state_->generation;
  for (auto& [path, inode] : state_->names) inode->locked_by = nullptr;
  if (unsynced == Unsynced::kKept) return;
  Names after;
  std::set<std::string> paths;
  for (const auto& [path, inode] : state_->names) paths.insert(path);
  for (const auto& [path, inode] : state_->durable_names) paths.insert(path);
  for (const std::string& path : paths) {
    const Names& source = keep() ? state_->names : state_->durable_names;
    if (const auto found = source.find(path); found != source.end()) after.insert(*found);
  }
  std::set<Inode*> done;
  for (auto& [path, inode] : after) {
    if (!done.insert(inode.get()).second) continue;
    if (unsynced == Unsynced::kLost) inode->content = inode->durable;
    if (unsynced == Unsynced::kTorn) inode->content = tear(*inode, rng);
    inode->durable = inode->content;
    inode->forget_dirty();
    inode->locked_by = nullptr;
  }
  state_->names = after;
  state_->durable_names = std::move(after);
}

class MemoryFileSystem::Copy {
 public:
  std::map<std::string, std::vector<std::byte>> files;
  std::set<std::string> folders;
};

std::shared_ptr<const MemoryFileSystem::Copy> MemoryFileSystem::copy() const {
  const std::lock_guard lock(state_->mutex);
  auto copy = std::make_shared<Copy>();
  copy->folders = state_->folders;
  for (const auto& [path, inode] : state_->names) copy->files.emplace(path, inode->content);
  return copy;
}

void MemoryFileSystem::replace(const Copy& copy) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->names.clear();
    for (const auto& [path, content] : copy.files) {
      const auto inode = std::make_shared<Inode>();
      inode->content = inode->durable = content;
      state_->names.emplace(path, inode);
    }
    state_->durable_names = state_->names;
    state_->folders = copy.folders;
  }
  restart(Unsynced::kKept);
}

Result<std::unique_ptr<File>> MemoryFileSystem::open(const std::string& path, OpenMode mode) {
  const std::lock_guard lock(state_->mutex);
  FLUVIAL_TRY(state_->begin(path));
  FLUVIAL_TRY(state_->require_folder(path));
  auto found = state_->names.find(path);
  if (found == state_->names.end()) {
    if (mode == OpenMode::kRead || mode == OpenMode::kReadWrite) {
      return Error{Code::kNotFound, "opening " + path + ": no such file"};
    }
    found = state_->names.emplace(path, std::make_shared<Inode>()).first;
  }
  if (mode == OpenMode::kTruncate) found->second = std::make_shared<Inode>();
  return std::unique_ptr<File>(std::make_unique<MemoryFile>(state_, found->second, path));
}

Result<std::unique_ptr<File>> MemoryFileSystem::open_unnamed(const std::string& folder) {
  const std::lock_guard lock(state_->mutex);
  const std::string path = join_path(folder, "(unnamed)");
  FLUVIAL_TRY(state_->begin(path));
  FLUVIAL_TRY(state_->require_folder(path));
  return std::unique_ptr<File>(std::make_unique<MemoryFile>(state_, std::make_shared<Inode>(), path));
}

Status MemoryFileSystem::rename(const std::string& from, const std::string& to) {
  const std::lock_guard lock(state_->mutex);
  FLUVIAL_TRY(state_->begin(from));
  const auto found = state_->names.find(from);
  if (found == state_->names.end()) return Error{Code::kNotFound, "renaming " + from + ": no such file"};
  state_->names[to] = found->second;
  state_->names.erase(from);
  return {};
}

Status MemoryFileSystem::remove(const std::string& path) {
  const std::lock_guard lock(state_->mutex);
  FLUVIAL_TRY(state_->begin(path));
  if (state_->names.erase(path) == 1) return {};
  if (!state_->folders.contains(path)) return Error{Code::kNotFound, "removing " + path + ": no such file"};
  const std::string prefix = path + "/";
  const auto next = state_->names.lower_bound(prefix);
  if (next != state_->names.end() && next->first.starts_with(prefix)) {
    return Error{Code::kAlreadyExists, "removing " + path + ": the folder is not empty"};
  }
  state_->folders.erase(path);
  return {};
}

Result<bool> MemoryFileSystem::exists(const std::string& path) {
  const std::lock_guard lock(state_->mutex);
  FLUVIAL_TRY(state_->begin(path));
  return state_->names.contains(path) || state_->folders.contains(path);
}

Result<std::vector<std::string>> MemoryFileSystem::list(const std::string& folder) {
  const std::lock_guard lock(state_->mutex);
  FLUVIAL_TRY(state_->begin(folder));
  if (!state_->folders.contains(folder)) return Error{Code::kNotFound, "listing " + folder + ": no such folder"};
  std::vector<std::string> found;
  for (const auto& [path, inode] : state_->names) {
    if (folder_of(path) == folder) found.push_back(path.substr(path.rfind('/') + 1));
  }
  for (const std::string& path : state_->folders) {
    if (path != "/" && path != "." && folder_of(path) == folder) found.push_back(path.substr(path.rfind('/') + 1));
  }
  std::sort(found.begin(), found.end());
  return found;
}

Status MemoryFileSystem::make_folder(const std::string& path) {
  const std::lock_guard lock(state_->mutex);
  FLUVIAL_TRY(state_->begin(path));
  for (std::string folder = path; state_->folders.insert(folder).second; folder = folder_of(folder)) continue;
  return {};
}

Status MemoryFileSystem::sync_folder(const std::string& path) {
  const std::lock_guard lock(state_->mutex);
  if (const Status begun = state_->begin(path); !begun.ok()) return Error{Code::kUnavailable, begun.error().message};
  std::erase_if(state_->durable_names, [&](const auto& entry) { return folder_of(entry.first) == path; });
  for (const auto& [name, inode] : state_->names) {
    if (folder_of(name) == path) state_->durable_names[name] = inode;
  }
  return {};
}

}  // namespace fluvial::store

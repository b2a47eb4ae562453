#include "core/store/spare_files.h"

#include <algorithm>
#include <utility>

namespace fluvial::store {

SpareFiles::SpareFiles(FileSystem& files, std::string tensors, std::string spares)
    : files_(files), tensors_(std::move(tensors)), folder_(std::move(spares)) {}

bool SpareFiles::State::is_read() const {
  return std::ranges::any_of(readers, [](const std::weak_ptr<File>& reader) { return !reader.expired(); });
}

Status SpareFiles::open_folder() {
  FLUVIAL_TRY(files_.make_folder(folder_));
  FLUVIAL_ASSIGN(const std::vector<std::string> names, files_.list(folder_));
  for (const std::string& name : names) FLUVIAL_TRY(files_.remove(join_path(folder_, name)));
  return {};
}

SpareFiles::States::iterator SpareFiles::choose(Size size) {
  auto chosen = spares_.end();
  for (auto spare = spares_.begin(); spare != spares_.end(); ++spare) {
    if (spare->second.is_read()) continue;
    const bool better =
        chosen == spares_.end() || (size == Size::kLarge) == (spare->second.bytes > chosen->second.bytes);
    if (better) chosen = spare;
  }
  return chosen;
}

Result<SpareFiles::Slot> SpareFiles::open(const std::string& name, Size size) {
  if (failed_.exchange(false)) {
    for (const auto& [spare, state] : spares_) static_cast<void>(files_.remove(join_path(folder_, spare)));
    spares_.clear();
  }
  const std::string path = join_path(tensors_, name);
  if (const auto spare = choose(size); spare != spares_.end()) {
    const auto [old_name, state] = std::move(*spare);
    spares_.erase(spare);
    const std::string old_path = join_path(folder_, old_name);
    if (files_.rename(old_path, path).ok()) {
      Result<std::unique_ptr<File>> file = files_.open(path, OpenMode::kReadWrite);
      if (file.ok()) {
        ++reused_;
        return Slot{std::move(*file), state.bytes};
      }
      static_cast<void>(files_.remove(path));
      return file.error();
    }
    static_cast<void>(files_.remove(old_path));  // or somebody else has removed it: a new one serves as well
  }
  FLUVIAL_ASSIGN(std::unique_ptr<File> file, files_.open(path, OpenMode::kTruncate));
  return Slot{std::move(file), 0};
}

Status SpareFiles::cut(const Slot& slot, std::uint64_t bytes) {
  return slot.old_bytes / 2 > bytes ? slot.file->truncate(bytes) : Status{};
}

void SpareFiles::wrote(const std::string& name, const Slot& slot, std::uint64_t bytes) {
  named_[name] = {slot.old_bytes / 2 > bytes ? bytes : std::max(bytes, slot.old_bytes)};
  reads(name, slot.file);
}

void SpareFiles::reads(const std::string& name, const std::shared_ptr<File>& reader) {
  const auto found = named_.find(name);
  if (found == named_.end()) return;  // of an earlier process: never written again
  std::erase_if(found->second.readers, [](const std::weak_ptr<File>& one) { return one.expired(); });
  found->second.readers.push_back(reader);
}

void SpareFiles::retire(const std::string& name) {
  auto node = named_.extract(name);
  const bool keep = !node.empty() && spares_.size() < kSparesMax;
  if (keep && files_.rename(join_path(tensors_, name), join_path(folder_, name)).ok()) {
    spares_.insert(std::move(node));
    return;
  }
  static_cast<void>(files_.remove(join_path(tensors_, name)));
}

}  // namespace fluvial::store

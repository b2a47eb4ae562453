#include "core/store/spill_files.h"

#include <algorithm>
#include <ranges>
#include <utility>

namespace fluvial::store {

Result<std::unique_ptr<File>> SpillFiles::take(FileSystem& files, const std::string& folder) {
  {
    const std::lock_guard lock(mutex_);
    const auto last = std::ranges::find_if(
        std::views::reverse(kept_), [&](const Kept& kept) { return kept.files == &files && kept.folder == folder; });
    if (last != kept_.rend()) {
      std::unique_ptr<File> file = std::move(last->file);
      kept_.erase(std::prev(last.base()));
      ++counts_.reused;
      return file;
    }
    ++counts_.opened;
  }
  return files.open_unnamed(folder);
}

void SpillFiles::keep(const FileSystem& files, const std::string& folder, std::unique_ptr<File> file) {
  const std::lock_guard lock(mutex_);
  kept_.push_back({&files, folder, std::move(file)});
}

bool SpillFiles::close_kept() {
  std::vector<Kept> gone;
  const std::lock_guard lock(mutex_);
  gone.swap(kept_);
  return !gone.empty();
}

void SpillFiles::close_idle() {
  const std::lock_guard lock(mutex_);
  std::erase_if(kept_, [](Kept& kept) { return std::exchange(kept.idle, true); });
}

SpillFiles::Counts SpillFiles::counts() const {
  const std::lock_guard lock(mutex_);
  Counts counts = counts_;
  counts.kept = kept_.size();
  return counts;
}

}  // namespace fluvial::store

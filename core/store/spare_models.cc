#include "core/store/spare_models.h"

#include <algorithm>

#include "core/store/sole.h"

namespace fluvial::store {
namespace {

constexpr std::string_view kSpareSuffix = ".spare.tmp";

// `spare` under the name `temporary`, if it may be overwritten. Else null, and it is gone or may be.
std::unique_ptr<File> take(FileSystem& files, const std::string& spare, const std::string& temporary,
                           std::uint64_t bytes) {
  if (!files.sync_folder(folder_of(spare)).ok()) return nullptr;
  if (!files.rename(spare, temporary).ok()) return nullptr;
  Result<std::unique_ptr<File>> file = files.open(temporary, OpenMode::kReadWrite);
  if (!file.ok() || !is_sole(**file)) return nullptr;
  const Result<std::uint64_t> size = (*file)->size();
  if (!size.ok()) return nullptr;
  if (*size != bytes && !(*file)->truncate(bytes).ok()) return nullptr;
  return std::move(*file);
}

}  // namespace

bool is_spare_model(std::string_view name) { return name.ends_with(kSpareSuffix); }

Status retire_model(FileSystem& files, const std::string& folder, const std::string& name,
                    const std::vector<std::string>& names) {
  for (const std::string& one : names) {
    if (is_spare_model(one)) static_cast<void>(files.remove(join_path(folder, one)));  // or somebody has taken it
  }
  const std::string path = join_path(folder, name);
  const std::string spare = path.substr(0, path.rfind('.')) + std::string(kSpareSuffix);
  if (files.rename(path, spare).ok()) return {};
  return files.remove(path);
}

Result<std::unique_ptr<File>> open_model_file(FileSystem& files, const std::string& path, std::uint64_t bytes) {
  const std::string folder = folder_of(path);
  const std::string temporary = temporary_of(path);
  FLUVIAL_ASSIGN(const std::vector<std::string> names, files.list(folder));
  if (const auto spare = std::ranges::find_if(names, is_spare_model); spare != names.end()) {
    const std::string old_path = join_path(folder, *spare);
    if (std::unique_ptr<File> file = take(files, old_path, temporary, bytes)) return file;
    static_cast<void>(files.remove(old_path));
  }
  return files.open(temporary, OpenMode::kTruncate);
}

Status drop_spare_models(FileSystem& files, const std::string& folder) {
  FLUVIAL_ASSIGN(const std::vector<std::string> names, files.list(folder));
  for (const std::string& name : names) {
    if (is_spare_model(name)) FLUVIAL_TRY(files.remove(join_path(folder, name)));
  }
  return {};
}

}  // namespace fluvial::store

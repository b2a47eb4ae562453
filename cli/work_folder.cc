#include "cli/work_folder.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <string.h>

#include <cerrno>
#include <filesystem>
#include <utility>

namespace fluvial::cli {
namespace {

constexpr std::size_t kPathBytesMax = 107 - sizeof("/sites-9999/site-9999/worker.sock");

Status check_length(const std::string& path) {
  if (path.size() <= kPathBytesMax) return {};
  return Error{Code::kInvalidArgument,
               fmt::format("{} is {} bytes long: expected at most {}, so that the paths of Unix sockets in it fit",
                           path, path.size(), kPathBytesMax)};
}

}  // namespace

Result<WorkFolder> WorkFolder::open(const std::string& named, bool keep, const std::string& purpose) {
  std::error_code error;
  if (named.empty()) {
    const auto base = std::filesystem::temp_directory_path(error);
    if (error) return Error{Code::kInvalidArgument, fmt::format("no folder for temporary files: {}", error.message())};
    std::string pattern = (base / fmt::format("fluvial-{}-XXXXXX", purpose)).string();
    FLUVIAL_TRY(check_length(pattern));
    if (::mkdtemp(pattern.data()) == nullptr) {
      return Error{Code::kUnavailable,
                   fmt::format("{}: {}", pattern, ::strerror(errno))};  // NOLINT(concurrency-mt-unsafe)
    }
    return WorkFolder(pattern, keep);
  }
  const std::string path = std::filesystem::absolute(named, error).lexically_normal().string();
  FLUVIAL_TRY(check_length(path));
  std::filesystem::create_directories(path, error);
  if (error) return Error{Code::kInvalidArgument, fmt::format("--work-dir {}: {}", named, error.message())};
  if (!std::filesystem::is_empty(path, error) || error) {
    return Error{Code::kInvalidArgument, fmt::format("--work-dir {}: expected an empty or a new folder", named)};
  }
  return WorkFolder(path, true);
}

WorkFolder::WorkFolder(WorkFolder&& other) noexcept : path_(std::exchange(other.path_, "")), kept_(other.kept_) {}

WorkFolder::~WorkFolder() {
  std::error_code ignored;  // what is left over in a temporary folder is no failure of what was done in it
  if (!kept_ && !path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace fluvial::cli

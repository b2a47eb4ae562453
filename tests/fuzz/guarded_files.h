// A file system that stops the process when code under test names a path that is not its own: one in memory would say
// "no such file" of "folder/../key.pem", where a real one opens it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/store/file_system.h"

namespace fluvial::fuzz {

class GuardedFiles final : public store::FileSystem {
 public:
  using IsOwn = std::function<bool(const std::string& path)>;
  GuardedFiles(store::FileSystem& files, IsOwn is_own) : files_(files), is_own_(std::move(is_own)) {}

  Result<std::unique_ptr<store::File>> open(const std::string& path, store::OpenMode mode) override {
    return files_.open(own(path), mode);
  }
  Result<std::unique_ptr<store::File>> open_unnamed(const std::string& folder) override {
    return files_.open_unnamed(own(folder));
  }
  Status rename(const std::string& from, const std::string& to) override { return files_.rename(own(from), own(to)); }
  Status remove(const std::string& path) override { return files_.remove(own(path)); }
  Result<bool> exists(const std::string& path) override { return files_.exists(own(path)); }
  Result<std::vector<std::string>> list(const std::string& folder) override { return files_.list(own(folder)); }
  Status make_folder(const std::string& path) override { return files_.make_folder(own(path)); }
  Status sync_folder(const std::string& path) override { return files_.sync_folder(own(path)); }

 private:
  const std::string& own(const std::string& path) const {
    FLUVIAL_CHECK(is_own_(path), "a path of somebody else's");
    return path;
  }
  store::FileSystem& files_;
  IsOwn is_own_;
};

}  // namespace fluvial::fuzz

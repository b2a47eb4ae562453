// A folder for a federation on this machine: temporary and removed at the end, or one that the person named.
#pragma once

#include <string>

#include "core/base/result.h"

namespace fluvial::cli {

class WorkFolder {
 public:
  // `named` empty: a new one under TMPDIR, removed at the end unless `keep`. Otherwise that folder, made when absent,
  // refused when it holds something, and kept. kInvalidArgument too when its path leaves no room for sockets in it.
  static Result<WorkFolder> open(const std::string& named, bool keep, const std::string& purpose);
  WorkFolder(WorkFolder&& other) noexcept;
  WorkFolder& operator=(WorkFolder&&) = delete;
  ~WorkFolder();

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  bool is_kept() const { return kept_; }

 private:
  WorkFolder(std::string path, bool kept) : path_(std::move(path)), kept_(kept) {}
  std::string path_;
  bool kept_;
};

}  // namespace fluvial::cli

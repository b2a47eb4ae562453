// A file system whose operations on paths with `part` in them fail, each with a probability that can change. This is in
// addition to the faults of the disk below it (disk.h), which depend on the number of the operation.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/store/file_system.h"
#include "simulator/scenario/chance.h"

namespace fluvial::simulator {

class FlakyFiles final : public store::FileSystem {
 public:
  FlakyFiles(store::FileSystem& files, std::string part, Rng rng, std::function<double()> rate)
      : files_(files), part_(std::move(part)), rng_(rng), rate_(std::move(rate)) {}
  FlakyFiles(const FlakyFiles&) = delete;
  FlakyFiles& operator=(const FlakyFiles&) = delete;

  Result<std::unique_ptr<store::File>> open(const std::string& path, store::OpenMode mode) override;
  Result<std::unique_ptr<store::File>> open_unnamed(const std::string& folder) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status remove(const std::string& path) override;
  Result<bool> exists(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& folder) override;
  Status make_folder(const std::string& path) override;
  Status sync_folder(const std::string& path) override;

  Status fails(const std::string& path);  // the error of an operation on that path, if it fails

 private:
  store::FileSystem& files_;
  std::string part_;
  Rng rng_;
  std::function<double()> rate_;
};

}  // namespace fluvial::simulator

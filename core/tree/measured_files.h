// A file system that counts what another one does: how long writes and fsyncs take and how many bytes are written, by
// what the files are for. It adds two readings of the clock to a write.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "core/base/clock.h"
#include "core/store/file_system.h"
#include "core/telemetry/metrics.h"

namespace fluvial::tree {

// All given outlive it, and it outlives its Files. Thread safe.
class MeasuredFiles final : public store::FileSystem {
 public:
  MeasuredFiles(store::FileSystem& files, telemetry::Metrics& metrics, const Clock& clock, std::string data_folder);
  ~MeasuredFiles() override;

  Result<std::unique_ptr<store::File>> open(const std::string& path, store::OpenMode mode) override;
  Result<std::unique_ptr<store::File>> open_unnamed(const std::string& folder) override;
  Status rename(const std::string& from, const std::string& to) override { return files_.rename(from, to); }
  Status remove(const std::string& path) override { return files_.remove(path); }
  Result<bool> exists(const std::string& path) override { return files_.exists(path); }
  Result<std::vector<std::string>> list(const std::string& folder) override { return files_.list(folder); }
  Status make_folder(const std::string& path) override { return files_.make_folder(path); }
  Status sync_folder(const std::string& path) override;

 private:
  struct Kind;
  class MeasuredFile;
  const Kind& kind_of(const std::string& path) const;

  store::FileSystem& files_;
  const Clock& clock_;
  std::string data_folder_;
  std::map<std::string, std::unique_ptr<Kind>, std::less<>> kinds_;  // by what they are for; "other" is among them
};

}  // namespace fluvial::tree

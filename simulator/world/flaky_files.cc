#include "simulator/world/flaky_files.h"

#include "core/store/sole.h"

namespace fluvial::simulator {
namespace {

class FlakyFile final : public store::File, public store::KnowsOthers {
 public:
  FlakyFile(FlakyFiles& files, std::string path, std::unique_ptr<store::File> file)
      : files_(files), path_(std::move(path)), file_(std::move(file)) {}
  Result<std::size_t> read_at(std::uint64_t offset, MutableByteSpan into) override {
    FLUVIAL_TRY(files_.fails(path_));
    return file_->read_at(offset, into);
  }
  Status write_at(std::uint64_t offset, ByteSpan bytes) override {
    FLUVIAL_TRY(files_.fails(path_));
    return file_->write_at(offset, bytes);
  }
  Status truncate(std::uint64_t size_bytes) override {
    FLUVIAL_TRY(files_.fails(path_));
    return file_->truncate(size_bytes);
  }
  Result<std::uint64_t> size() override {
    FLUVIAL_TRY(files_.fails(path_));
    return file_->size();
  }
  Status sync() override {
    FLUVIAL_TRY(files_.fails(path_));
    return file_->sync();
  }
  Status sync_data() override {
    FLUVIAL_TRY(files_.fails(path_));
    return file_->sync_data();
  }
  Result<bool> try_lock() override { return file_->try_lock(); }
  void unlock() override { file_->unlock(); }
  bool is_sole() override { return store::is_sole(*file_); }

 private:
  FlakyFiles& files_;
  std::string path_;
  std::unique_ptr<store::File> file_;
};

}  // namespace

Status FlakyFiles::fails(const std::string& path) {
  if (path.find(part_) == std::string::npos || !happens(rng_, rate_())) return {};
  if (rng_.below(2) == 0) return Error{Code::kUnavailable, path + ": input/output error"};
  return Error{Code::kResourceExhausted, path + ": no space left on device"};
}

Result<std::unique_ptr<store::File>> FlakyFiles::open(const std::string& path, store::OpenMode mode) {
  FLUVIAL_TRY(fails(path));
  FLUVIAL_ASSIGN(std::unique_ptr<store::File> file, files_.open(path, mode));
  return std::unique_ptr<store::File>(std::make_unique<FlakyFile>(*this, path, std::move(file)));
}
Result<std::unique_ptr<store::File>> FlakyFiles::open_unnamed(const std::string& folder) {
  FLUVIAL_TRY(fails(folder));
  return files_.open_unnamed(folder);
}
Status FlakyFiles::rename(const std::string& from, const std::string& to) {
  FLUVIAL_TRY(fails(from));
  return files_.rename(from, to);
}
Status FlakyFiles::remove(const std::string& path) {
  FLUVIAL_TRY(fails(path));
  return files_.remove(path);
}
Result<bool> FlakyFiles::exists(const std::string& path) {
  FLUVIAL_TRY(fails(path));
  return files_.exists(path);
}
Result<std::vector<std::string>> FlakyFiles::list(const std::string& folder) {
  FLUVIAL_TRY(fails(folder));
  return files_.list(folder);
}
Status FlakyFiles::make_folder(const std::string& path) {
  FLUVIAL_TRY(fails(path));
  return files_.make_folder(path);
}
Status FlakyFiles::sync_folder(const std::string& path) {
  FLUVIAL_TRY(fails(path));
  return files_.sync_folder(path);
}

}  // namespace fluvial::simulator

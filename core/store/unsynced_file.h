// A file that is never fsynced: for a test that must be fast, and for tests which prove that a missing fsync is
// noticed.
#pragma once

#include <memory>
#include <utility>

#include "core/store/file_system.h"

namespace fluvial::store {

class UnsyncedFile final : public File {
 public:
  explicit UnsyncedFile(std::unique_ptr<File> file) : file_(std::move(file)) {}
  Result<std::size_t> read_at(std::uint64_t offset, MutableByteSpan into) override {
    return file_->read_at(offset, into);
  }
  Status write_at(std::uint64_t offset, ByteSpan bytes) override { return file_->write_at(offset, bytes); }
  Status truncate(std::uint64_t size_bytes) override { return file_->truncate(size_bytes); }
  Result<std::uint64_t> size() override { return file_->size(); }
  Status sync() override { return {}; }
  Status sync_data() override { return {}; }
  Result<bool> try_lock() override { return file_->try_lock(); }
  void unlock() override { file_->unlock(); }

 private:
  std::unique_ptr<File> file_;
};

}  // namespace fluvial::store

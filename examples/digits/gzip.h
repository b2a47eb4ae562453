// Bytes of a file, unpacked when it is gzip.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "core/base/bytes.h"
#include "core/base/result.h"

struct gzFile_s;

namespace fluvial::digits {

class GzipReader {
 public:
  static Result<GzipReader> open(const std::filesystem::path& file);

  // kInvalidArgument when the file ends before or is damaged.
  Status read_exactly(MutableByteSpan into);
  // The rest of the file; kInvalidArgument beyond `bytes_max`.
  Result<std::string> read_rest(std::size_t bytes_max);

 private:
  struct Close {
    void operator()(gzFile_s* file) const;
  };
  GzipReader(std::string name, gzFile_s* file) : name_(std::move(name)), file_(file) {}
  Result<std::size_t> read_some(MutableByteSpan into);

  std::string name_;
  std::unique_ptr<gzFile_s, Close> file_;
};

}  // namespace fluvial::digits

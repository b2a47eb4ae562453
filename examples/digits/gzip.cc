#include "examples/digits/gzip.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <system_error>

namespace fluvial::digits {
namespace {

constexpr std::size_t kPieceBytes = 1 << 16;

}  // namespace

void GzipReader::Close::operator()(gzFile_s* file) const { ::gzclose_r(file); }

Result<GzipReader> GzipReader::open(const std::filesystem::path& file) {
  errno = 0;
  gzFile_s* const opened = ::gzopen(file.c_str(), "rbe");
  if (opened == nullptr) {
    return Error{Code::kNotFound, fmt::format("{}: {}", file.native(), std::generic_category().message(errno))};
  }
  return GzipReader(file.native(), opened);
}

Result<std::size_t> GzipReader::read_some(MutableByteSpan into) {
  const int count = ::gzread(file_.get(), into.data(), static_cast<unsigned>(std::min(into.size(), kPieceBytes)));
  int code = Z_OK;
  const char* const message = ::gzerror(file_.get(), &code);
  if (count < 0 || (code != Z_OK && code != Z_STREAM_END)) {  // Z_BUF_ERROR: the file is cut short
    return Error{Code::kInvalidArgument, fmt::format("{}: damaged: {}", name_, message)};
  }
  return static_cast<std::size_t>(count);
}

Status GzipReader::read_exactly(MutableByteSpan into) {
  while (!into.empty()) {
    FLUVIAL_ASSIGN(const std::size_t count, read_some(into));
    if (count == 0) return Error{Code::kInvalidArgument, fmt::format("{}: ends too early", name_)};
    into = into.subspan(count);
  }
  return {};
}

Result<std::string> GzipReader::read_rest(std::size_t bytes_max) {
  std::string text;
  std::string piece(kPieceBytes, '\0');
  for (;;) {
    FLUVIAL_ASSIGN(const std::size_t count, read_some(std::as_writable_bytes(std::span(piece))));
    if (count == 0) return text;
    if (count > bytes_max - text.size()) {
      return Error{Code::kInvalidArgument, fmt::format("{}: more than {} bytes", name_, bytes_max)};
    }
    text.append(piece, 0, count);
  }
}

}  // namespace fluvial::digits

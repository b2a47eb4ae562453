#include "core/store/file_system.h"

#include <utility>

namespace fluvial::store {

std::string join_path(std::string_view folder, std::string_view name) {
  std::string path(folder);
  if (!path.empty() && path.back() != '/') path += '/';
  path += name;
  return path;
}

std::string folder_of(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return slash == 0 ? "/" : std::string(path.substr(0, slash));
}

std::string temporary_of(const std::string& path) { return path + std::string(kTemporarySuffix); }

Status read_exactly(File& file, std::uint64_t offset, MutableByteSpan into, std::string_view path) {
  FLUVIAL_ASSIGN(const std::size_t got, file.read_at(offset, into));
  if (got == into.size()) return {};
  return Error{Code::kDataLoss, std::string(path) + " ends at byte " + std::to_string(offset + got) + ", expected " +
                                    std::to_string(offset + into.size()) + " or more"};
}

Status write_temporary(FileSystem& files, const std::string& path, std::span<const ByteSpan> parts) {
  FLUVIAL_ASSIGN(const std::unique_ptr<File> file, files.open(temporary_of(path), OpenMode::kTruncate));
  std::uint64_t offset = 0;
  for (const ByteSpan part : parts) {
    FLUVIAL_TRY(file->write_at(offset, part));
    offset += part.size();
  }
  return file->sync();
}

Status write_file_atomically(FileSystem& files, const std::string& path, std::span<const ByteSpan> parts) {
  Status written = write_temporary(files, path, parts);
  if (written.ok()) written = files.rename(temporary_of(path), path);
  if (!written.ok()) {
    // A full disk must not keep the part that was written; the error that matters is the first one.
    static_cast<void>(files.remove(temporary_of(path)));
    return written;
  }
  return files.sync_folder(folder_of(path));
}

Result<Buffer> read_file(FileSystem& files, const std::string& path, std::uint64_t size_max) {
  FLUVIAL_ASSIGN(const std::unique_ptr<File> file, files.open(path, OpenMode::kRead));
  FLUVIAL_ASSIGN(const std::uint64_t size, file->size());
  if (size > size_max) {
    return Error{Code::kInvalidArgument,
                 path + " has " + std::to_string(size) + " bytes, expected at most " + std::to_string(size_max)};
  }
  Buffer content(size);
  FLUVIAL_TRY(read_exactly(*file, 0, content.span(), path));
  return content;
}

}  // namespace fluvial::store

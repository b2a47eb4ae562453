#include "core/store/backup.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>
#include <utility>

#include "core/digest/sha256.h"
#include "core/store/safetensors.h"

namespace fluvial::store {
namespace {

constexpr std::string_view kManifest = "manifest.json";
constexpr std::string_view kObjects = "objects";
constexpr std::string_view kLock = "lock";
constexpr std::string_view kIncoming = "incoming.tmp";  // an object whose digest is not known yet
constexpr std::size_t kBlockBytes = std::size_t{1} << 20;

bool is_of_a_backup(std::string_view name) {
  return name == kManifest || name == temporary_of(std::string(kManifest)) || name == kObjects || name == kLock ||
         name == "lost+found";  // the root folder of a separate disk has it
}

// The digest of a safetensors file's data section, fed block by block: the file's first 8 bytes say where it begins.
class ModelDigest {
 public:
  void update(std::uint64_t offset, ByteSpan part) {
    if (offset == 0 && part.size() >= sizeof(begin_)) {
      std::uint64_t header = 0;
      std::memcpy(&header, part.data(), sizeof(header));
      static_assert(std::endian::native == std::endian::little);
      begin_ = std::min(header, kSafetensorsHeaderBytesMax) + sizeof(header);
    }
    const std::uint64_t end = offset + part.size();
    if (end > begin_) hash_.update(part.subspan(begin_ > offset ? begin_ - offset : 0));
  }
  Digest finish() { return hash_.finish(); }

 private:
  Sha256 hash_;
  std::uint64_t begin_ = ~std::uint64_t{0};
};

// Reads the file block by block to its end.
Status for_each_block(File& file, const std::function<Status(std::uint64_t offset, ByteSpan part)>& take) {
  Buffer block(kBlockBytes);
  for (std::uint64_t offset = 0;;) {
    FLUVIAL_ASSIGN(const std::size_t got, file.read_at(offset, block.span()));
    if (got > 0) FLUVIAL_TRY(take(offset, block.span().first(got)));
    offset += got;
    if (got < block.size()) return {};
  }
}

}  // namespace

Result<BackupFolder> BackupFolder::hold(FileSystem& files, const std::string& folder) {
  BackupFolder backup(files, folder);
  FLUVIAL_TRY(files.make_folder(folder));
  FLUVIAL_ASSIGN(const std::vector<std::string> names, files.list(folder));
  const auto other = std::ranges::find_if_not(names, is_of_a_backup);
  if (other != names.end()) {
    return Error{Code::kFailedPrecondition, join_path(folder, *other) +
                                                " is no part of a backup: name a folder that is empty, new, or holds "
                                                "an earlier backup of this coordinator"};
  }
  FLUVIAL_ASSIGN(backup.lock_, files.open(join_path(folder, kLock), OpenMode::kCreate));
  FLUVIAL_ASSIGN(const bool locked, backup.lock_->try_lock());
  if (!locked) return Error{Code::kFailedPrecondition, "another backup is being written to " + folder};
  FLUVIAL_ASSIGN(backup.manifest_, backup.read_manifest());
  FLUVIAL_TRY(files.make_folder(join_path(folder, kObjects)));
  return backup;
}

Result<BackupFolder> BackupFolder::open(FileSystem& files, const std::string& folder) {
  BackupFolder backup(files, folder);
  FLUVIAL_ASSIGN(backup.manifest_, backup.read_manifest());
  if (backup.manifest_) return backup;
  return Error{Code::kNotFound, folder + " holds no backup: " + join_path(folder, kManifest) +
                                    " is not there. One that is interrupted has none yet"};
}

Result<std::optional<BackupManifest>> BackupFolder::read_manifest() const {
  const std::string path = join_path(folder_, kManifest);
  const Result<Buffer> content = read_file(*files_, path, kManifestBytesMax);
  if (!content.ok() && content.error().code == Code::kNotFound) return std::optional<BackupManifest>();
  if (!content.ok()) return content.error();
  FLUVIAL_ASSIGN(BackupManifest manifest, manifest_from_json(as_text(content->span()), path));
  return std::optional(std::move(manifest));
}

std::string BackupFolder::object_path(const Digest& sha256) const {
  return join_path(join_path(folder_, kObjects), to_hex(sha256));
}

Result<BackupFile> BackupFolder::add(File& from, const std::string& path, const std::optional<Digest>& model) {
  const std::string incoming = join_path(join_path(folder_, kObjects), kIncoming);
  FLUVIAL_ASSIGN(const std::unique_ptr<File> to, files_->open(incoming, OpenMode::kTruncate));
  BackupFile taken{path, 0, {}, model};
  Sha256 hash;
  ModelDigest data;
  FLUVIAL_TRY(for_each_block(from, [&](std::uint64_t offset, ByteSpan part) {
    hash.update(part);
    data.update(offset, part);
    taken.bytes += part.size();
    return to->write_at(offset, part);
  }));
  taken.sha256 = hash.finish();
  const std::string name = path.starts_with(kBackupModels) ? path.substr(kBackupModels.size()) : "";
  const bool is_model = ModelStore::key_of(name) || ModelStore::key_of(name, ModelFile::kTrained);
  if (is_model && model && data.finish() != *model) {
    return Error{Code::kDataLoss, path + " does not hold the model that the journal names: it is damaged"};
  }
  FLUVIAL_TRY(to->sync());
  FLUVIAL_TRY(files_->rename(incoming, object_path(taken.sha256)));
  return taken;
}

Result<BackupFile> BackupFolder::add_bytes(ByteSpan bytes, const std::string& path) {
  const BackupFile taken{path, bytes.size(), sha256(bytes), {}};
  const ByteSpan parts[] = {bytes};
  FLUVIAL_TRY(write_file_atomically(*files_, object_path(taken.sha256), parts));
  return taken;
}

std::optional<BackupFile> BackupFolder::find_before(const std::string& path, const Digest& model) const {
  const BackupFile* before = manifest_ ? manifest_->find(path) : nullptr;
  if (before == nullptr || before->model != model) return std::nullopt;
  const auto object = files_->open(object_path(before->sha256), OpenMode::kRead);
  if (!object.ok()) return std::nullopt;
  const Result<std::uint64_t> size = (*object)->size();
  if (!size.ok() || *size != before->bytes) return std::nullopt;
  return *before;
}

Status BackupFolder::publish(const BackupManifest& manifest) {
  FLUVIAL_TRY(files_->sync_folder(join_path(folder_, kObjects)));
  const std::string text = manifest_to_json(manifest);
  const ByteSpan parts[] = {as_byte_span(text)};
  FLUVIAL_TRY(write_file_atomically(*files_, join_path(folder_, kManifest), parts));
  manifest_ = manifest;
  return keep_only(manifest);
}

Status BackupFolder::keep_only(const BackupManifest& manifest) {
  std::set<std::string> named;
  for (const BackupFile& file : manifest.files) named.insert(to_hex(file.sha256));
  const std::string objects = join_path(folder_, kObjects);
  FLUVIAL_ASSIGN(const std::vector<std::string> names, files_->list(objects));
  for (const std::string& name : names) {
    if (!named.contains(name)) FLUVIAL_TRY(files_->remove(join_path(objects, name)));
  }
  return {};
}

Status BackupFolder::check_object(const BackupFile& file,
                                  const std::function<Status(std::uint64_t offset, ByteSpan part)>& take) const {
  const std::string path = object_path(file.sha256);
  const auto object = files_->open(path, OpenMode::kRead);
  if (!object.ok() && object.error().code == Code::kNotFound) {
    return Error{Code::kDataLoss, path + " (" + file.path + ") is missing: the backup is not whole"};
  }
  if (!object.ok()) return object.error();
  const Error damaged{Code::kDataLoss, path + " (" + file.path + ") is damaged: use another backup"};
  FLUVIAL_ASSIGN(const std::uint64_t size, (*object)->size());
  if (size != file.bytes) return damaged;
  Sha256 hash;
  std::uint64_t read = 0;
  FLUVIAL_TRY(for_each_block(**object, [&](std::uint64_t offset, ByteSpan part) -> Status {
    read = offset + part.size();
    if (read > file.bytes) return damaged;
    hash.update(part);
    return take(offset, part);
  }));
  return read == file.bytes && hash.finish() == file.sha256 ? Status() : Status(damaged);
}

Status BackupFolder::verify() const {
  for (const BackupFile& file : manifest_->files) {
    FLUVIAL_TRY(check_object(file, [](std::uint64_t, ByteSpan) -> Status { return {}; }));
  }
  return {};
}

Status BackupFolder::copy_out(const BackupFile& file, const std::string& to) const {
  FLUVIAL_TRY(files_->make_folder(folder_of(to)));
  FLUVIAL_ASSIGN(const std::unique_ptr<File> out, files_->open(to, OpenMode::kTruncate));
  FLUVIAL_TRY(check_object(file, [&](std::uint64_t offset, ByteSpan part) { return out->write_at(offset, part); }));
  FLUVIAL_TRY(out->sync());
  return files_->sync_folder(folder_of(to));
}

Result<Buffer> BackupFolder::read(const BackupFile& file, std::uint64_t size_max) const {
  if (file.bytes > size_max) {
    return Error{Code::kDataLoss, "the manifest is damaged: '" + file.path + "' is larger than it can be"};
  }
  Buffer content(file.bytes);
  FLUVIAL_TRY(check_object(file, [&](std::uint64_t offset, ByteSpan part) -> Status {
    std::memcpy(content.data() + offset, part.data(), part.size());
    return {};
  }));
  return content;
}

}  // namespace fluvial::store

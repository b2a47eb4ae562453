// A backup of a coordinator's folder, as it lies on a disk (docs/formats/backup.md): `manifest.json` names every file,
// `objects/<sha256>` holds its content. Objects are written first; then the manifest replaces the one before in one
// step; only then are objects removed that no manifest names any more. So at each moment the folder is a whole backup,
// or none.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/store/backup_manifest.h"
#include "core/store/file_system.h"

namespace fluvial::store {

// One thread at a time. `files` outlives it.
class BackupFolder {
 public:
  // To write a backup into an empty folder (made when absent), over an earlier backup, or over what an interrupted one
  // left. The folder is locked until this is destroyed. kFailedPrecondition for a folder with anything else in it, or
  // while another backup is written there.
  static Result<BackupFolder> hold(FileSystem& files, const std::string& folder);
  // To read the backup. kNotFound when there is no whole backup in the folder.
  static Result<BackupFolder> open(FileSystem& files, const std::string& folder);

  // Of the backup in the folder; when held, of the backup before, if any.
  const std::optional<BackupManifest>& manifest() const { return manifest_; }

  // ---- held
  // Adds the rest of `from`. kDataLoss when it is a model whose bytes do not have the digest `model`.
  Result<BackupFile> add(File& from, const std::string& path, const std::optional<Digest>& model = {});
  Result<BackupFile> add_bytes(ByteSpan bytes, const std::string& path);
  // The file that the backup before has for this model: its bytes need not be read again.
  std::optional<BackupFile> find_before(const std::string& path, const Digest& model) const;
  // Makes this the backup. Durable when it returns; objects that only the backup before named are removed.
  Status publish(const BackupManifest& manifest);

  // ---- opened
  // Checks that every object is there and has its length and its digest. kDataLoss names the first that has not.
  Status verify() const;
  Status copy_out(const BackupFile& file, const std::string& to) const;       // verified on the way; durable
  Result<Buffer> read(const BackupFile& file, std::uint64_t size_max) const;  // verified

  std::string object_path(const Digest& sha256) const;

 private:
  BackupFolder(FileSystem& files, std::string folder) : files_(&files), folder_(std::move(folder)) {}
  Result<std::optional<BackupManifest>> read_manifest() const;
  Status check_object(const BackupFile& file,
                      const std::function<Status(std::uint64_t offset, ByteSpan part)>& take) const;
  Status keep_only(const BackupManifest& manifest);

  FileSystem* files_;
  std::string folder_;
  std::unique_ptr<File> lock_;
  std::optional<BackupManifest> manifest_;
};

}  // namespace fluvial::store

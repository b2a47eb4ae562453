// A backup of a coordinator's folder, as it lies on a disk (docs/formats/backup.md): `manifest.json` names every file,
// `objects/<sha256>` holds its content. Objects come first, the manifest replaces the one before in one step, and only
// then does what nothing names any more go: at each moment the folder is a whole backup, or none.
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
  // To be written: an empty folder (made when absent), a backup, or what an interrupted one left. Held until dropped.
  // kFailedPrecondition for a folder with anything else in it, or while another backup is written there.
  static Result<BackupFolder> hold(FileSystem& files, const std::string& folder);
  // To be read. kNotFound when there is no whole backup in it.
  static Result<BackupFolder> open(FileSystem& files, const std::string& folder);

  // Of the backup that is there; when held: of the one before, if any.
  const std::optional<BackupManifest>& manifest() const { return manifest_; }

  // ---- held
  // Takes the rest of `from` in. kDataLoss when it is a model whose bytes do not have the digest that `model` says.
  Result<BackupFile> add(File& from, const std::string& path, const std::optional<Digest>& model = {});
  Result<BackupFile> add_bytes(ByteSpan bytes, const std::string& path);
  // What the backup before took of this model file: the bytes need not be read again.
  std::optional<BackupFile> find_before(const std::string& path, const Digest& model) const;
  // From here on this is the backup. Durable when it returns; what only the one before named is removed.
  Status publish(const BackupManifest& manifest);

  // ---- opened
  // Every object is there, has its length and its digest. kDataLoss names the first that does not.
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

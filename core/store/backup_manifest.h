// What a backup's manifest.json says (docs/formats/backup.md): whose it is, of when, and every file with its digest.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/store/model_store.h"
#include "core/store/rows.h"

namespace fluvial::store {

inline constexpr std::string_view kBackupJournal = "journal.sqlite";
inline constexpr std::string_view kBackupAuthority = "ca/ca.pem";
inline constexpr std::string_view kBackupKey = "ca/ca-key.pem";
inline constexpr std::string_view kBackupOwnKey = "coordinator/key.pem";  // the coordinator's; from format 2 on
// "ca/authority-", 16 hex digits and "-key.pem": of an authority in a rollover, from format 2 on.
bool is_backup_rollover_key(std::string_view path);
inline constexpr std::string_view kBackupModels = "models/";  // before a model file's name in its store

struct BackupFile {
  std::string path;  // in the coordinator's folder
  std::uint64_t bytes = 0;
  Digest sha256{};
  std::optional<Digest> model = {};  // of a model file and of its optimizer's state: the model's digest in the journal
  bool operator==(const BackupFile&) const = default;
};

struct BackupRun {
  RunId run;
  RunStatus status = RunStatus::kRunning;
  RoundId round;  // its last commit; 0: none
  bool operator==(const BackupRun&) const = default;
};

struct BackupManifest {
  std::string fluvial;  // the version that made it
  std::string federation;
  std::string pin;         // of its authority
  std::string created_at;  // UTC, "2026-01-31T12:00:00.123Z"
  std::uint64_t journal_format = 0;
  std::uint64_t restores = 0;
  std::string key;  // how the authority's key and the coordinator's are sealed: "passphrase", "recipient" or "none"
  std::vector<BackupRun> runs;
  std::vector<BackupFile> files;  // by path
  bool operator==(const BackupManifest&) const = default;

  const BackupFile* find(std::string_view path) const;
  std::uint64_t total_bytes() const;
};

inline constexpr std::uint64_t kManifestBytesMax = std::uint64_t{64} << 20;

std::string manifest_to_json(const BackupManifest& manifest);
// kDataLoss when the manifest is damaged or says what no backup says: a path that no coordinator's folder has, a path
// twice, a required file missing. kFailedPrecondition when a newer version wrote it. `where` starts the messages.
Result<BackupManifest> manifest_from_json(std::string_view text, const std::string& where);

}  // namespace fluvial::store

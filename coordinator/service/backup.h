// A coordinator's folder into a backup, while it runs or not, and out of one into a new folder.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "core/base/clock.h"
#include "core/base/result.h"
#include "core/identity/key.h"
#include "core/store/backup.h"

namespace fluvial::coordinator {

inline constexpr const char* kJournalCopyFile = "backup.sqlite";      // in the data folder, while a backup is made
inline constexpr const char* kUnfinishedFile = "restore-unfinished";  // in a data folder that is being restored
inline constexpr const char* kRestoredFile = "restore-finished";      // in one that was, until --restored is run

struct BackupRequest {
  std::string data_dir;
  std::string folder;  // of the backup
  std::string key;     // how `seal` seals: "passphrase", "recipient" or "none"
  std::function<Result<std::string>(const identity::PrivateKey& key)> seal;
  // Puts a fresh copy of the journal into kJournalCopyFile: asks the coordinator that runs, or copies it itself.
  std::function<Status()> copy_journal;
};

struct BackupReport {
  store::BackupManifest manifest;
  std::uint64_t models_copied = 0;  // files
  std::uint64_t models_kept = 0;    // that the backup before held
  std::uint64_t bytes_copied = 0;
};

// Durable and whole when it returns. Models may be pruned meanwhile: those that the journal's copy needs are opened as
// soon as it is made, and a copy that came too late for one is made again. Blocking.
Result<BackupReport> make_backup(store::FileSystem& files, const BackupRequest& request, WallTime now);

using OpenKey = std::function<Result<identity::PrivateKey>(const std::string& kind, std::string_view sealed)>;

// When the last one was made, for whoever watches the coordinator; none: never, or nobody knows.
Status note_backup(store::FileSystem& files, const std::string& data_dir, WallTime made);
std::optional<WallTime> last_backup(store::FileSystem& files, const std::string& data_dir);

// Every file of the backup in `folder` is there, with its digest; and, when `open_key` is given, the key opens and is
// the authority's. Nothing is written.
Result<store::BackupManifest> check_backup(store::FileSystem& files, const std::string& folder,
                                           const OpenKey& open_key);

// After check_backup(): into `data_dir`, which is empty or not there (kFailedPrecondition). Until all is durable a
// coordinator does not start in it, and then not before --restored was run.
Result<store::BackupManifest> restore_backup(store::FileSystem& files, const std::string& folder,
                                             const std::string& data_dir, const OpenKey& open_key);

// kFailedPrecondition, with what to do, in a folder that restore_backup() left unfinished; or, unless `marking`, in one
// that --restored has not been run in.
Status check_restored(store::FileSystem& files, const std::string& data_dir, bool marking);

}  // namespace fluvial::coordinator

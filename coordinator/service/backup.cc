#include "coordinator/service/backup.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "coordinator/service/json.h"
#include "core/identity/certificate.h"
#include "core/identity/files.h"
#include "core/identity/sealed_key.h"
#include "core/store/journal_copy.h"
#include "core/tree/version.h"

namespace fluvial::coordinator {
namespace {

using store::join_path;

constexpr int kCopiesMax = 100;  // of the journal, each later than the model that the one before needed
constexpr std::int64_t kTimeMsMax = std::int64_t{1} << 48;  // in the year 10889
constexpr std::uint64_t kSmallFileBytesMax = 64 * 1024;

// A file that is needed whole: open, it stays readable when it is pruned.
struct Wanted {
  std::string name;  // in the model store
  Digest model;
  std::unique_ptr<store::File> file;
};

// Those without which a run cannot go on. kNotFound names the first that is not there.
Result<std::vector<Wanted>> open_needed(store::FileSystem& files, const std::string& models,
                                        const store::JournalContent& content) {
  std::vector<Wanted> needed;
  for (const store::JournalContent::Run& run : content.runs) {
    if (!run.is_open()) continue;
    const round::ModelKey last{run.run, ModelVersion(run.round.value())};
    const Digest& model = content.models.at(last);
    std::vector<std::pair<std::string, Digest>> names = {{store::ModelStore::name_of(last), model}};
    if (!run.optimizer.empty()) names.emplace_back(run.optimizer, model);
    if (run.trained) names.emplace_back(store::ModelStore::name_of(last, store::ModelFile::kTrained), *run.trained);
    for (auto& [name, digest] : names) {
      auto file = files.open(join_path(models, name), store::OpenMode::kRead);
      // A run that is being started is in the journal before its model is on the disk.
      const bool starting = run.status == store::RunStatus::kPaused && run.round.value() == 0;
      if (!file.ok() && file.error().code == Code::kNotFound && starting) continue;
      if (!file.ok()) return file.error();
      needed.push_back({std::move(name), digest, std::move(*file)});
    }
  }
  return needed;
}

struct Snapshot {
  store::BackupFile journal;
  store::JournalContent content;
  std::vector<Wanted> needed;
};

// The journal, and the models that it needs, held open.
Result<Snapshot> take_snapshot(store::FileSystem& files, const BackupRequest& request, store::BackupFolder& backup) {
  const std::string copy = join_path(request.data_dir, kJournalCopyFile);
  std::string missing;
  for (int i = 0; i < kCopiesMax; ++i) {
    FLUVIAL_TRY(request.copy_journal());
    Snapshot snapshot;
    {
      FLUVIAL_ASSIGN(const std::unique_ptr<store::File> file, files.open(copy, store::OpenMode::kRead));
      FLUVIAL_ASSIGN(snapshot.journal, backup.add(*file, std::string(store::kBackupJournal)));
    }
    FLUVIAL_ASSIGN(snapshot.content, read_journal_copy(files, backup.object_path(snapshot.journal.sha256)));
    auto needed = open_needed(files, join_path(request.data_dir, "models"), snapshot.content);
    if (needed.ok()) {
      snapshot.needed = std::move(*needed);
      return snapshot;
    }
    // Pruned since the copy was made, unless a later copy still needs it.
    if (needed.error().code != Code::kNotFound || needed.error().message == missing) return needed.error();
    missing = needed.error().message;
  }
  return Error{Code::kUnavailable, "rounds are committed faster than their models can be opened (" + missing +
                                       "): try again, or raise the plan's models_kept"};
}

// Keys and certificates of the authority, and of those of a rollover.
struct AuthorityFiles {
  identity::PrivateKey key;
  std::vector<identity::Certificate> chain;                   // of ca.pem
  std::map<std::string, identity::PrivateKey> rollover = {};  // by their paths in the backup
};

Result<AuthorityFiles> read_authority(store::FileSystem& files, const std::string& data_dir) {
  const std::string folder = join_path(data_dir, "ca");
  FLUVIAL_ASSIGN(identity::PrivateKey key, identity::PrivateKey::load(folder + "/ca-key.pem"));
  FLUVIAL_ASSIGN(std::vector<identity::Certificate> chain, identity::Certificate::load_chain(folder + "/ca.pem"));
  AuthorityFiles read{std::move(key), std::move(chain)};
  FLUVIAL_ASSIGN(const std::vector<std::string> names, files.list(folder));
  for (const std::string& name : names) {
    const std::string path = "ca/" + name;
    if (!store::is_backup_rollover_key(path)) continue;
    FLUVIAL_ASSIGN(identity::PrivateKey one, identity::PrivateKey::load(join_path(folder, name)));
    read.rollover.emplace(path, std::move(one));
  }
  return read;
}

bool is_same(const AuthorityFiles& a, const AuthorityFiles& b) {
  const auto path = [](const auto& entry) { return entry.first; };
  return identity::Certificate::pem_of(a.chain) == identity::Certificate::pem_of(b.chain) &&
         std::ranges::equal(a.rollover, b.rollover, {}, path, path);
}

// Whether a backup with this pin is an earlier one of the same federation, which has rolled over since.
Result<bool> was_pinned(store::FileSystem& files, const BackupRequest& request, const std::string& pin) {
  FLUVIAL_TRY(request.copy_journal());
  const std::string copy = join_path(request.data_dir, kJournalCopyFile);
  const Result<store::JournalContent> read = read_journal_copy(files, copy);
  static_cast<void>(files.remove(copy));  // the next one replaces it
  FLUVIAL_ASSIGN(const store::JournalContent content, read);
  for (const std::string& pem : content.authorities) {
    const auto chain = identity::Certificate::chain_from_pem(pem);
    if (chain.ok() && identity::pin_of(chain->back()) == pin) return true;
  }
  return false;
}

Status check_same_federation(store::FileSystem& files, const BackupRequest& request,
                             const std::optional<store::BackupManifest>& before) {
  if (!before) return {};
  FLUVIAL_ASSIGN(const AuthorityFiles held, read_authority(files, request.data_dir));
  if (before->pin == identity::pin_of(held.chain.back())) return {};
  FLUVIAL_ASSIGN(const bool earlier, was_pinned(files, request, before->pin));
  if (earlier) return {};
  return Error{Code::kFailedPrecondition, request.folder + " holds a backup of another federation (" +
                                              before->federation + "): name another folder"};
}

struct Held {
  AuthorityFiles authority;
  Snapshot snapshot;
};

// The journal says in which phase a rollover is: the keys are those of the same phase.
Result<Held> take_all(store::FileSystem& files, const BackupRequest& request, store::BackupFolder& backup) {
  for (int i = 0; i < kCopiesMax; ++i) {
    Result<AuthorityFiles> before = read_authority(files, request.data_dir);
    FLUVIAL_ASSIGN(Snapshot snapshot, take_snapshot(files, request, backup));
    const Result<AuthorityFiles> after = read_authority(files, request.data_dir);
    if (!after.ok()) return after.error();
    if (before.ok() && is_same(*before, *after)) return Held{std::move(*before), std::move(snapshot)};
  }
  return Error{Code::kUnavailable, "the certificate authority changes while it is copied: try again"};
}

class Maker {
 public:
  Maker(store::FileSystem& files, const BackupRequest& request, store::BackupFolder& backup)
      : files_(files), request_(request), backup_(backup) {}

  // As they lie in the folder: a rollover may change them meanwhile.
  Status add_authority(const AuthorityFiles& held) {
    FLUVIAL_TRY(identity::check_key_of(held.key, held.chain.front()));
    report_.manifest.pin = identity::pin_of(held.chain.back());
    report_.manifest.key = request_.key;
    FLUVIAL_TRY(add_sealed(held.key, store::kBackupKey));
    for (const auto& [path, key] : held.rollover) FLUVIAL_TRY(add_sealed(key, path));
    const auto own = identity::PrivateKey::load(join_path(request_.data_dir, std::string(store::kBackupOwnKey)));
    if (!own.ok() && own.error().code != Code::kNotFound) return own.error();
    if (own.ok()) FLUVIAL_TRY(add_sealed(*own, store::kBackupOwnKey));
    return add_text(identity::Certificate::pem_of(held.chain), store::kBackupAuthority);
  }

  // What an export could ask for is taken as well, as far as it is there.
  Status add_models(Snapshot& snapshot) {
    for (Wanted& wanted : snapshot.needed) FLUVIAL_TRY(add_model(wanted.name, wanted.model, *wanted.file));
    const std::string folder = join_path(request_.data_dir, "models");
    FLUVIAL_ASSIGN(const store::ModelStore models, store::ModelStore::open(files_, folder));
    FLUVIAL_ASSIGN(const std::vector<round::ModelKey> there, models.list());
    for (const round::ModelKey& ref : there) {
      const auto known = snapshot.content.models.find(ref);
      const std::string name = store::ModelStore::name_of(ref);
      if (known == snapshot.content.models.end() || added_.contains(std::string(store::kBackupModels) + name)) continue;
      const auto file = files_.open(join_path(folder, name), store::OpenMode::kRead);
      if (!file.ok() && file.error().code == Code::kNotFound) continue;
      if (!file.ok()) return file.error();
      FLUVIAL_TRY(add_model(name, known->second, **file));
    }
    return {};
  }

  Result<BackupReport> publish(const Snapshot& snapshot, WallTime now) {
    store::BackupManifest& manifest = report_.manifest;
    manifest.fluvial = tree::kVersion;
    manifest.federation = snapshot.content.federation;
    manifest.created_at = utc(now);
    manifest.journal_format = snapshot.content.format;
    manifest.restores = snapshot.content.restores;
    for (const auto& run : snapshot.content.runs) manifest.runs.push_back({run.run, run.status, run.round});
    added_.emplace(store::kBackupJournal, snapshot.journal);
    report_.bytes_copied += snapshot.journal.bytes;
    for (auto& [path, file] : added_) manifest.files.push_back(file);
    FLUVIAL_TRY(backup_.publish(manifest));
    return report_;
  }

 private:
  Status add_sealed(const identity::PrivateKey& key, std::string_view path) {
    FLUVIAL_ASSIGN(const std::string sealed, request_.seal(key));
    return add_text(sealed, path);
  }

  Status add_text(std::string_view text, std::string_view path) {
    FLUVIAL_ASSIGN(const store::BackupFile file, backup_.add_bytes(as_byte_span(text), std::string(path)));
    added_.emplace(path, file);
    return {};
  }

  Status add_model(const std::string& name, const Digest& model, store::File& from) {
    const std::string path = std::string(store::kBackupModels) + name;
    std::optional<store::BackupFile> file = backup_.find_before(path, model);
    if (file) {
      ++report_.models_kept;
    } else {
      FLUVIAL_ASSIGN(file, backup_.add(from, path, model));
      ++report_.models_copied;
      report_.bytes_copied += file->bytes;
    }
    added_.emplace(path, *file);
    return {};
  }

  store::FileSystem& files_;
  const BackupRequest& request_;
  store::BackupFolder& backup_;
  BackupReport report_;
  std::map<std::string, store::BackupFile, std::less<>> added_;  // by path
};

// A backup may come from anywhere: a link or a pipe in it leads elsewhere, or nowhere.
Status check_plain(const std::string& folder) {
  std::error_code failure;
  std::filesystem::recursive_directory_iterator at(folder, failure);
  for (; !failure && at != std::filesystem::recursive_directory_iterator(); at.increment(failure)) {
    const auto status = at->symlink_status(failure);
    if (failure || is_regular_file(status) || is_directory(status)) continue;
    return Error{Code::kDataLoss, at->path().string() + " is neither file nor folder: no backup has that"};
  }
  if (!failure) return {};
  const Code code = failure == std::errc::no_such_file_or_directory ? Code::kNotFound : Code::kUnavailable;
  return Error{code, "cannot read the backup " + folder + ": " + failure.message()};
}

bool is_other_key(std::string_view path) { return path == store::kBackupOwnKey || store::is_backup_rollover_key(path); }

struct Checked {
  store::BackupFolder backup;
  std::vector<identity::Certificate> chain;  // from the certificate that issues to the authority
  std::optional<identity::PrivateKey> key;
  // By their paths: the coordinator's own, in a backup that has it, and those of a rollover.
  std::map<std::string, identity::PrivateKey> others;
};

Result<Checked> check(store::FileSystem& files, const std::string& folder, const OpenKey& open_key) {
  FLUVIAL_TRY(check_plain(folder));
  FLUVIAL_ASSIGN(store::BackupFolder backup, store::BackupFolder::open(files, folder));
  const store::BackupManifest& manifest = *backup.manifest();
  FLUVIAL_ASSIGN(const Buffer pem, backup.read(*manifest.find(store::kBackupAuthority), kSmallFileBytesMax));
  FLUVIAL_ASSIGN(auto chain, identity::Certificate::chain_from_pem(as_text(pem.span())));
  if (identity::pin_of(chain.back()) != manifest.pin) {
    return Error{Code::kDataLoss, folder + ": the authority's certificate is not the one that the manifest pins"};
  }
  FLUVIAL_ASSIGN(const Buffer sealed, backup.read(*manifest.find(store::kBackupKey), kSmallFileBytesMax));
  std::optional<identity::PrivateKey> key;
  if (open_key) {
    FLUVIAL_ASSIGN(key, open_key(manifest.key, as_text(sealed.span())));
    FLUVIAL_TRY(identity::check_key_of(*key, chain.front()));
  }
  std::map<std::string, identity::PrivateKey> others;
  for (const store::BackupFile& file : manifest.files) {
    if (!open_key || !is_other_key(file.path)) continue;
    FLUVIAL_ASSIGN(const Buffer text, backup.read(file, kSmallFileBytesMax));
    FLUVIAL_ASSIGN(identity::PrivateKey other, open_key(manifest.key, as_text(text.span())));
    others.emplace(file.path, std::move(other));
  }
  FLUVIAL_TRY(backup.verify());
  return Checked{std::move(backup), std::move(chain), std::move(key), std::move(others)};
}

Status check_empty(store::FileSystem& files, const std::string& data_dir) {
  FLUVIAL_TRY(check_restored(files, data_dir, true));
  const auto names = files.list(data_dir);
  if (!names.ok() && names.error().code == Code::kNotFound) return {};
  if (!names.ok()) return names.error();
  for (const std::string& name : *names) {
    if (name == "lost+found") continue;  // of a disk of its own
    return Error{Code::kFailedPrecondition, data_dir + " is not empty (" + name +
                                                "): a backup is restored into a new folder. Stop the coordinator "
                                                "there and move the folder away, or name another with --data-dir"};
  }
  return {};
}

Status mark(store::FileSystem& files, const std::string& path) {
  const ByteSpan parts[] = {as_byte_span("by fluvial restore\n")};
  return store::write_file_atomically(files, path, parts);
}

constexpr const char* kLastBackupFile = "last-backup";  // milliseconds since 1970

}  // namespace

Status note_backup(store::FileSystem& files, const std::string& data_dir, WallTime made) {
  const std::string text = std::to_string(made.time_since_epoch().count()) + "\n";
  const ByteSpan parts[] = {as_byte_span(text)};
  return store::write_file_atomically(files, join_path(data_dir, kLastBackupFile), parts);
}

std::optional<WallTime> last_backup(store::FileSystem& files, const std::string& data_dir) {
  const auto content = store::read_file(files, join_path(data_dir, kLastBackupFile), 100);
  if (!content.ok()) return std::nullopt;
  const std::string_view text = as_text(content->span());
  std::int64_t ms = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ms);
  if (error != std::errc() || ms <= 0 || ms > kTimeMsMax) return std::nullopt;
  return WallTime(std::chrono::milliseconds(ms));
}

Result<BackupReport> make_backup(store::FileSystem& files, const BackupRequest& request, WallTime now) {
  const std::string journal = join_path(request.data_dir, std::string(store::kBackupJournal));
  FLUVIAL_ASSIGN(const bool there, files.exists(journal));
  if (!there) return Error{Code::kNotFound, journal + " is not there: --data-dir names the coordinator's folder"};
  FLUVIAL_ASSIGN(store::BackupFolder backup, store::BackupFolder::hold(files, request.folder));
  FLUVIAL_TRY(check_same_federation(files, request, backup.manifest()));
  Maker maker(files, request, backup);
  FLUVIAL_ASSIGN(Held held, take_all(files, request, backup));
  FLUVIAL_TRY(maker.add_authority(held.authority));
  static_cast<void>(files.remove(join_path(request.data_dir, kJournalCopyFile)));  // the next one replaces it
  FLUVIAL_TRY(maker.add_models(held.snapshot));
  return maker.publish(held.snapshot, now);
}

Result<store::BackupManifest> check_backup(store::FileSystem& files, const std::string& folder,
                                           const OpenKey& open_key) {
  FLUVIAL_ASSIGN(const Checked checked, check(files, folder, open_key));
  return *checked.backup.manifest();
}

Result<store::BackupManifest> restore_backup(store::FileSystem& files, const std::string& folder,
                                             const std::string& data_dir, const OpenKey& open_key) {
  FLUVIAL_TRY(check_empty(files, data_dir));
  FLUVIAL_ASSIGN(const Checked checked, check(files, folder, open_key));
  const std::string unfinished = join_path(data_dir, kUnfinishedFile);
  FLUVIAL_TRY(files.make_folder(data_dir));
  FLUVIAL_TRY(mark(files, unfinished));
  FLUVIAL_TRY(files.make_folder(join_path(data_dir, "ca")));
  FLUVIAL_TRY(files.make_folder(join_path(data_dir, "models")));
  FLUVIAL_TRY(checked.key->save(join_path(data_dir, std::string(store::kBackupKey))));
  FLUVIAL_TRY(
      identity::Certificate::save_chain(checked.chain, join_path(data_dir, std::string(store::kBackupAuthority))));
  for (const auto& [path, key] : checked.others) {
    const std::string to = join_path(data_dir, path);
    FLUVIAL_TRY(identity::make_private_folder(std::filesystem::path(to).parent_path().string()));
    FLUVIAL_TRY(key.save(to));
  }
  const store::BackupManifest& manifest = *checked.backup.manifest();
  for (const store::BackupFile& file : manifest.files) {
    const bool is_written = file.path == store::kBackupKey || is_other_key(file.path);
    if (is_written || file.path == store::kBackupAuthority) continue;
    FLUVIAL_TRY(checked.backup.copy_out(file, join_path(data_dir, file.path)));
  }
  FLUVIAL_TRY(files.rename(unfinished, join_path(data_dir, kRestoredFile)));
  FLUVIAL_TRY(files.sync_folder(data_dir));
  return manifest;
}

Status check_restored(store::FileSystem& files, const std::string& data_dir, bool marking) {
  FLUVIAL_ASSIGN(const bool unfinished, files.exists(join_path(data_dir, kUnfinishedFile)));
  if (unfinished) {
    return Error{Code::kFailedPrecondition, data_dir +
                                                " holds a restore that was cut short: remove what is in it, "
                                                "and run fluvial restore again"};
  }
  FLUVIAL_ASSIGN(const bool restored, files.exists(join_path(data_dir, kRestoredFile)));
  if (!restored || marking) return {};
  return Error{Code::kFailedPrecondition, data_dir +
                                              " was restored from a backup: run once fluvial coordinator "
                                              "--data-dir " +
                                              data_dir + " --restored, then start it"};
}

}  // namespace fluvial::coordinator

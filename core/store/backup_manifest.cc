#include "core/store/backup_manifest.h"

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <set>
#include <utility>

#include "core/digest/sha256.h"
#include "core/store/journal_copy.h"
#include "core/store/json.h"

namespace fluvial::store {
namespace {

namespace json = boost::json;

constexpr std::uint64_t kFormat = 2;
constexpr std::size_t kTextBytesMax = 100;

Error damaged(const std::string& what) { return {Code::kDataLoss, "the manifest is damaged: " + what}; }

Result<const json::value*> member(const json::object& object, std::string_view key) {
  const json::value* found = object.if_contains(key);
  if (found == nullptr) return damaged("'" + std::string(key) + "' is missing");
  return found;
}

Result<std::uint64_t> number(const json::object& object, std::string_view key) {
  FLUVIAL_ASSIGN(const json::value* value, member(object, key));
  if (value->is_int64() && value->as_int64() >= 0) return static_cast<std::uint64_t>(value->as_int64());
  return damaged("'" + std::string(key) + "' is no whole number");
}

// A text of the few characters in names, versions, pins and times, because it is printed.
Result<std::string> text(const json::object& object, std::string_view key) {
  FLUVIAL_ASSIGN(const json::value* value, member(object, key));
  if (!value->is_string()) return damaged("'" + std::string(key) + "' is no text");
  const std::string found(value->as_string());
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view(".:_-+~/").find(c) != std::string_view::npos;
  };
  if (found.size() > kTextBytesMax || !std::ranges::all_of(found, is_plain)) {
    return damaged("'" + std::string(key) + "' holds what it cannot");
  }
  return found;
}

Result<Digest> digest(const json::object& object, std::string_view key) {
  FLUVIAL_ASSIGN(const std::string hex, text(object, key));
  const Result<Digest> parsed = digest_from_hex(hex);
  if (!parsed.ok()) return damaged("'" + std::string(key) + "' is no SHA-256");
  return *parsed;
}

Result<const json::array*> list(const json::object& object, std::string_view key) {
  FLUVIAL_ASSIGN(const json::value* value, member(object, key));
  if (!value->is_array()) return damaged("'" + std::string(key) + "' is no list");
  return &value->as_array();
}

// A restore writes no other path, wherever it would lead.
bool is_of_a_coordinator(std::string_view path) {
  if (path == kBackupJournal || path == kBackupAuthority || path == kBackupKey || path == kBackupOwnKey) return true;
  if (is_backup_rollover_key(path)) return true;
  if (!path.starts_with(kBackupModels)) return false;
  const std::string_view name = path.substr(kBackupModels.size());
  for (const ModelFile file : kModelFiles) {
    const auto key = ModelStore::key_of(name, file);
    if (key && ModelStore::name_of(*key, file) == name) return true;
  }
  return false;
}

Result<BackupFile> read_file_entry(const json::value& value) {
  if (!value.is_object()) return damaged("a file is no object");
  const json::object& object = value.as_object();
  BackupFile file;
  FLUVIAL_ASSIGN(file.path, text(object, "path"));
  if (!is_of_a_coordinator(file.path)) return damaged("'" + file.path + "' is no file of a coordinator's folder");
  FLUVIAL_ASSIGN(file.bytes, number(object, "bytes"));
  FLUVIAL_ASSIGN(file.sha256, digest(object, "sha256"));
  if (object.contains("model")) {
    FLUVIAL_ASSIGN(file.model, digest(object, "model"));
  }
  return file;
}

Result<BackupRun> read_run(const json::value& value) {
  if (!value.is_object()) return damaged("a run is no object");
  const json::object& object = value.as_object();
  FLUVIAL_ASSIGN(const std::uint64_t run, number(object, "run"));
  FLUVIAL_ASSIGN(const std::uint64_t round, number(object, "round"));
  FLUVIAL_ASSIGN(const std::string status, text(object, "status"));
  const std::optional<RunStatus> known = round::parse_run_status(status);
  if (known) return BackupRun{RunId(run), *known, RoundId(round)};
  return damaged("no run is '" + status + "'");
}

Status check_files(const BackupManifest& manifest) {
  std::set<std::string_view> paths;
  for (const BackupFile& file : manifest.files) {
    if (!paths.insert(file.path).second) return damaged("'" + file.path + "' is there twice");
  }
  for (const std::string_view path : {kBackupJournal, kBackupAuthority, kBackupKey}) {
    if (!paths.contains(path)) return damaged("'" + std::string(path) + "' is missing");
  }
  for (const BackupRun& run : manifest.runs) {
    const bool goes_on =
        run.status == RunStatus::kRunning || (run.status == RunStatus::kPaused && run.round.value() > 0);
    const std::string model =
        std::string(kBackupModels) + ModelStore::name_of({run.run, ModelVersion(run.round.value())});
    if (goes_on && !paths.contains(model)) return damaged("'" + model + "' is missing");
  }
  return {};
}

Result<BackupManifest> read_backup(const json::object& object) {
  BackupManifest manifest;
  FLUVIAL_ASSIGN(manifest.fluvial, text(object, "fluvial"));
  FLUVIAL_ASSIGN(manifest.federation, text(object, "federation"));
  FLUVIAL_ASSIGN(manifest.pin, text(object, "pin"));
  FLUVIAL_ASSIGN(manifest.created_at, text(object, "created_at"));
  FLUVIAL_ASSIGN(manifest.journal_format, number(object, "journal_format"));
  FLUVIAL_ASSIGN(manifest.restores, number(object, "restores"));
  FLUVIAL_ASSIGN(manifest.key, text(object, "key"));
  FLUVIAL_ASSIGN(const json::array* runs, list(object, "runs"));
  for (const json::value& value : *runs) {
    FLUVIAL_ASSIGN(const BackupRun run, read_run(value));
    manifest.runs.push_back(run);
  }
  FLUVIAL_ASSIGN(const json::array* files, list(object, "files"));
  for (const json::value& value : *files) {
    FLUVIAL_ASSIGN(BackupFile file, read_file_entry(value));
    manifest.files.push_back(std::move(file));
  }
  FLUVIAL_TRY(check_files(manifest));
  return manifest;
}

Error newer(std::string_view version) {
  return {Code::kFailedPrecondition,
          "the backup was made by a newer Fluvial (" + std::string(version) + "): use that version, or a later one"};
}

Result<BackupManifest> read_manifest(const json::value& value) {
  if (!value.is_object()) return damaged("it is no object");
  FLUVIAL_ASSIGN(const std::uint64_t format, number(value.as_object(), "format"));
  if (format > kFormat) return newer("format " + std::to_string(format));
  FLUVIAL_ASSIGN(const Digest expected, digest(value.as_object(), "sha256"));
  FLUVIAL_ASSIGN(const json::value* backup, member(value.as_object(), "backup"));
  if (sha256(as_byte_span(json::serialize(*backup))) != expected) return damaged("its digest is another");
  if (!backup->is_object()) return damaged("'backup' is no object");
  FLUVIAL_ASSIGN(BackupManifest manifest, read_backup(backup->as_object()));
  if (manifest.journal_format > journal_format()) return newer(manifest.fluvial);
  return manifest;
}

json::object backup_object(const BackupManifest& manifest) {
  json::array runs;
  for (const BackupRun& run : manifest.runs) {
    runs.push_back({{"run", run.run.value()}, {"status", run_status_name(run.status)}, {"round", run.round.value()}});
  }
  json::array files;
  for (const BackupFile& file : manifest.files) {
    json::object object{{"path", file.path}, {"bytes", file.bytes}, {"sha256", to_hex(file.sha256)}};
    if (file.model) object["model"] = to_hex(*file.model);
    files.push_back(std::move(object));
  }
  return {{"fluvial", manifest.fluvial},
          {"federation", manifest.federation},
          {"pin", manifest.pin},
          {"created_at", manifest.created_at},
          {"journal_format", manifest.journal_format},
          {"restores", manifest.restores},
          {"key", manifest.key},
          {"runs", std::move(runs)},
          {"files", std::move(files)}};
}

}  // namespace

bool is_backup_rollover_key(std::string_view path) {
  constexpr std::string_view kPrefix = "ca/authority-";
  constexpr std::string_view kSuffix = "-key.pem";
  constexpr std::size_t kDigits = 16;
  if (path.size() != kPrefix.size() + kDigits + kSuffix.size()) return false;
  const std::string_view digits = path.substr(kPrefix.size(), kDigits);
  return path.starts_with(kPrefix) && path.ends_with(kSuffix) &&
         digits.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

const BackupFile* BackupManifest::find(std::string_view path) const {
  const auto found = std::ranges::find(files, path, &BackupFile::path);
  return found == files.end() ? nullptr : &*found;
}

std::uint64_t BackupManifest::total_bytes() const {
  std::uint64_t total = 0;
  for (const BackupFile& file : files) total += file.bytes;
  return total;
}

std::string manifest_to_json(const BackupManifest& manifest) {
  const std::string backup = json::serialize(backup_object(manifest));
  return "{\"format\":" + std::to_string(kFormat) + ",\"sha256\":\"" + to_hex(sha256(as_byte_span(backup))) +
         "\",\"backup\":" + backup + "}\n";
}

Result<BackupManifest> manifest_from_json(std::string_view text, const std::string& where) {
  const Result<json::value> value = parse_json(text, "not JSON");
  Result<BackupManifest> manifest =
      value.ok() ? read_manifest(*value) : Result<BackupManifest>(damaged(value.error().message));
  if (!manifest.ok()) return Error{manifest.error().code, where + ": " + manifest.error().message};
  return manifest;
}

}  // namespace fluvial::store

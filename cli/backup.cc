// fluvial backup and fluvial restore: the coordinator's folder, into a backup and out of one.
#include "coordinator/service/backup.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <optional>

#include "cli/admin_client.h"
#include "cli/command.h"
#include "cli/format.h"
#include "core/identity/sealed_key.h"
#include "core/store/journal_copy.h"

namespace fluvial::cli {
namespace {

constexpr const char* kPassphrase = "FLUVIAL_BACKUP_PASSPHRASE";

struct BackupOptions : AdminOptions {
  std::string folder;
  std::string passphrase_file;
  std::string recipient;
  bool plain_key = false;
};

struct RestoreOptions {
  std::string folder;
  std::string data_dir = "/var/lib/fluvial";
  std::string passphrase_file;
  std::string recipient_key;
  bool check = false;
  bool json = false;
};

// Of file, environment or terminal; none when there is none of them.
Result<std::optional<std::string>> find_passphrase(const Commands& commands, const std::string& file,
                                                   const std::string& prompt, bool twice) {
  if (!file.empty()) {
    FLUVIAL_ASSIGN(std::string text, identity::read_passphrase_file(file));
    return std::optional(std::move(text));
  }
  if (auto text = commands.environment(kPassphrase); text && !text->empty()) return text;
  if (prompt.empty() || ::isatty(STDIN_FILENO) == 0) return std::optional<std::string>();
  FLUVIAL_ASSIGN(std::string text, identity::ask_passphrase(prompt, twice));
  return std::optional(std::move(text));
}

// How the authority's key is sealed, decided before anything is copied.
Status choose_seal(const Commands& commands, const BackupOptions& options, coordinator::BackupRequest& request) {
  if (options.plain_key) {
    request.key = "none";
    request.seal = identity::leave_unsealed;
    return {};
  }
  if (!options.recipient.empty()) {
    FLUVIAL_ASSIGN(const auto chain, identity::Certificate::load_chain(options.recipient));
    request.key = "recipient";
    request.seal = [recipient = chain.front()](const identity::PrivateKey& key) {
      return identity::seal_for(key, recipient);
    };
    return {};
  }
  FLUVIAL_ASSIGN(const auto passphrase,
                 find_passphrase(commands, options.passphrase_file, "Passphrase for the authority's key: ", true));
  if (!passphrase) {
    return Error{Code::kInvalidArgument,
                 "whoever has the authority's private key can make itself any member, so a backup holds it encrypted: "
                 "give --passphrase-file FILE or --recipient CERT.pem (or --plain-key, where the place that it goes "
                 "to is encrypted itself)"};
  }
  request.key = "passphrase";
  request.seal = [text = *passphrase](const identity::PrivateKey& key) {
    return identity::seal_with_passphrase(key, text);
  };
  return {};
}

// SQLite may have to make files beside the journal, which the coordinator must be able to remove.
Status check_owner(const std::string& journal) {
  struct stat status = {};
  if (::stat(journal.c_str(), &status) != 0 || status.st_uid == ::geteuid()) return {};
  return Error{
      Code::kFailedPrecondition,
      fmt::format("no coordinator runs, and {} belongs to the user {}: run this as that user", journal, status.st_uid)};
}

// By the coordinator that runs with this folder, or by ourselves when none does.
Status copy_journal(store::FileSystem& files, const BackupOptions& options, const AdminClient& client, bool running) {
  const std::string to = store::join_path(options.data_dir, coordinator::kJournalCopyFile);
  if (running) {
    const auto copied = client.post("/v1/backup");
    return copied.ok() ? Status() : Status(copied.error());
  }
  const std::string journal = store::join_path(options.data_dir, std::string(store::kBackupJournal));
  FLUVIAL_TRY(check_owner(journal));
  const Status copied = store::copy_journal(files, journal, to);
  if (copied.ok() || copied.error().code != Code::kFailedPrecondition) return copied;
  return Error{Code::kFailedPrecondition, fmt::format("a coordinator runs in {}, and does not answer at {}: "
                                                      "--admin-socket says where its socket is",
                                                      options.data_dir, client.place())};
}

// Whether a coordinator answers; kFailedPrecondition when it keeps another folder.
Result<bool> find_coordinator(const BackupOptions& options, const AdminClient& client) {
  const auto status = client.get("/v1/status");
  if (!status.ok() && status.error().code == Code::kUnavailable) return false;
  if (!status.ok()) return status.error();
  FLUVIAL_ASSIGN(const auto chain, identity::Certificate::load_chain(options.data_dir + "/ca/ca.pem"));
  if (text_member(*status, "pin") == identity::pin_of(chain.back())) return true;
  return Error{Code::kFailedPrecondition,
               fmt::format("the coordinator at {} is of another federation than {}", client.place(), options.data_dir)};
}

json::object manifest_object(const store::BackupManifest& manifest) {
  json::array runs;
  for (const store::BackupRun& run : manifest.runs) {
    runs.push_back(
        {{"run", run.run.value()}, {"status", round::run_status_name(run.status)}, {"round", run.round.value()}});
  }
  return {{"federation", manifest.federation},
          {"created_at", manifest.created_at},
          {"fluvial", manifest.fluvial},
          {"pin", manifest.pin},
          {"key", manifest.key},
          {"restores", manifest.restores},
          {"files", manifest.files.size()},
          {"bytes", manifest.total_bytes()},
          {"runs", std::move(runs)}};
}

std::string described(const store::BackupManifest& manifest) {
  std::string text =
      fmt::format("federation {}, of {}, {} files, {}", manifest.federation, format_time(manifest.created_at),
                  manifest.files.size(), format_bytes(static_cast<double>(manifest.total_bytes())));
  for (const store::BackupRun& run : manifest.runs) {
    if (is_over(run.status)) continue;
    text += fmt::format("; run {} is {}, {} rounds committed", run.run.value(), round::run_status_name(run.status),
                        run.round.value());
  }
  return text;
}

int fail_by(const Io& io, std::string_view command, const Error& error) {
  return fail(io, command, error, error.code == Code::kInvalidArgument ? kUsage : kFailed);
}

int back_up(const Commands& commands, const BackupOptions& options) {
  const Io& io = commands.io;
  coordinator::BackupRequest request{.data_dir = options.data_dir, .folder = options.folder};
  if (const Status chosen = choose_seal(commands, options, request); !chosen.ok()) {
    return fail_by(io, "backup", chosen.error());
  }
  const AdminClient client(options.place(config::process_environment()));
  const auto running = find_coordinator(options, client);
  if (!running.ok()) return fail(io, "backup", running.error());
  request.copy_journal = [&] { return copy_journal(commands.files, options, client, *running); };
  const WallTime now = SystemClock().wall_now();
  const auto made = coordinator::make_backup(commands.files, request, now);
  if (!made.ok()) return fail(io, "backup", made.error());
  // The backup is whole: what cannot be noted is worth a line, not a failure.
  const Status noted = [&]() -> Status {
    if (!*running) return coordinator::note_backup(commands.files, options.data_dir, now);
    const auto told = client.post("/v1/backup/made", json::object{{"made_at_ms", now.time_since_epoch().count()}});
    return told.ok() ? Status() : Status(told.error());
  }();
  if (!noted.ok()) io.note(fmt::format("fluvial backup: its time could not be noted: {}\n", noted.error().message));
  if (options.json) {
    json::object object = manifest_object(made->manifest);
    object["folder"] = options.folder;
    object["coordinator_runs"] = *running;
    object["models_copied"] = made->models_copied;
    object["models_kept"] = made->models_kept;
    object["bytes_copied"] = made->bytes_copied;
    io.print(pretty(object));
    return kDone;
  }
  io.print(fmt::format("{}: {}; {} copied, {} model files were there already\n", options.folder,
                       described(made->manifest), format_bytes(static_cast<double>(made->bytes_copied)),
                       made->models_kept));
  return kDone;
}

coordinator::OpenKey opener(const Commands& commands, const RestoreOptions& options) {
  const auto typed = std::make_shared<std::optional<std::string>>();  // a backup has two keys; a person is asked once
  return [&commands, &options, typed](const std::string& kind,
                                      std::string_view sealed) -> Result<identity::PrivateKey> {
    if (kind == "none") return identity::open_unsealed(sealed);
    if (kind == "recipient") {
      if (options.recipient_key.empty()) {
        return Error{Code::kInvalidArgument,
                     "the authority's key is encrypted for a recipient: give its private key, --recipient-key KEY.pem"};
      }
      FLUVIAL_ASSIGN(const auto passphrase, find_passphrase(commands, options.passphrase_file, "", false));
      return identity::open_for(sealed, options.recipient_key, passphrase.value_or(""));
    }
    if (kind != "passphrase") {
      return Error{Code::kFailedPrecondition, "the authority's key is sealed in a way that this version does not know"};
    }
    if (!*typed) {
      FLUVIAL_ASSIGN(*typed,
                     find_passphrase(commands, options.passphrase_file, "Passphrase of the authority's key: ", false));
    }
    if (*typed) return identity::open_with_passphrase(sealed, **typed);
    return Error{Code::kInvalidArgument,
                 "the authority's key is encrypted: give the backup's passphrase, --passphrase-file FILE"};
  };
}

int restore(const Commands& commands, const RestoreOptions& options) {
  const Io& io = commands.io;
  const coordinator::OpenKey open_key = opener(commands, options);
  const bool key_given =
      !options.passphrase_file.empty() || !options.recipient_key.empty() || commands.environment(kPassphrase);
  const auto done = options.check
                        ? coordinator::check_backup(commands.files, options.folder, key_given ? open_key : nullptr)
                        : coordinator::restore_backup(commands.files, options.folder, options.data_dir, open_key);
  if (!done.ok()) return fail_by(io, "restore", done.error());
  const std::string next = fmt::format("fluvial coordinator --data-dir {} --restored", options.data_dir);
  if (options.json) {
    json::object object = manifest_object(*done);
    object["folder"] = options.folder;
    if (options.check) {
      object["key_checked"] = key_given;
    } else {
      object["data_dir"] = options.data_dir;
      object["next"] = next;
    }
    io.print(pretty(object));
    return kDone;
  }
  if (options.check) {
    io.print(fmt::format("{} is whole: {}; {}\n", options.folder, described(*done),
                         key_given ? "its key opens" : "its key was not tried (--passphrase-file, --recipient-key)"));
    return kDone;
  }
  io.print(
      fmt::format("{} holds {}\nNext, once, with the coordinator's own settings:\n  {}\nThen start it, and repeat the "
                  "revocations made since the backup: it knows nothing of them.\n",
                  options.data_dir, described(*done), next));
  return kDone;
}

void add_passphrase_option(CLI::App& app, std::string& file) {
  app.add_option("--passphrase-file", file,
                 fmt::format("its first line; else {}, else the terminal is asked", kPassphrase))
      ->type_name("FILE")
      ->envname("FLUVIAL_BACKUP_PASSPHRASE_FILE");
}

void add_backup(CLI::App& app, Commands& commands) {
  const auto options = std::make_shared<BackupOptions>();
  CLI::App* backup = app.add_subcommand("backup", "copy the coordinator's folder while it runs");
  backup->add_option("FOLDER", options->folder, "a new folder, or one with an earlier backup, which this one replaces")
      ->type_name("PATH")
      ->required();
  add_passphrase_option(*backup, options->passphrase_file);
  CLI::Option* recipient =
      backup
          ->add_option("--recipient", options->recipient,
                       "encrypt the authority's key for the owner of this certificate (PEM), who restores")
          ->type_name("FILE");
  backup->add_flag("--plain-key", options->plain_key, "leave the authority's key as it is: the place is safe by itself")
      ->excludes(recipient);
  // No --admin: models are copied from the data folder, so a backup is made on the coordinator's machine.
  add_socket_options(*backup, *options, "the coordinator's data folder");
  backup->add_flag("--json", options->json, "print what was copied as JSON");
  backup->footer(
      "Journal, models and certificate authority, each with its digest. It works while the coordinator runs and while\n"
      "it does not. Models that the folder holds already are not copied again; one that is interrupted leaves the\n"
      "backup before as it was. Run it as the coordinator's user.\n"
      "Example:\n  fluvial backup /srv/backup/fluvial --passphrase-file /etc/fluvial/backup.passphrase\n"
      "  fluvial restore /srv/backup/fluvial --check");
  backup->callback(
      [&commands, options] { commands.chosen = [&commands, options] { return back_up(commands, *options); }; });
}

void add_restore(CLI::App& app, Commands& commands) {
  const auto options = std::make_shared<RestoreOptions>();
  CLI::App* restored = app.add_subcommand("restore", "put a backup into a new folder, or check that it is whole");
  restored->add_option("FOLDER", options->folder, "the backup's")->type_name("PATH")->required();
  restored->add_option("--data-dir", options->data_dir, "the coordinator's new data folder: empty, or not there")
      ->type_name("PATH")
      ->envname("FLUVIAL_DATA_DIR")
      ->capture_default_str();
  add_passphrase_option(*restored, options->passphrase_file);
  restored
      ->add_option("--recipient-key", options->recipient_key,
                   "the private key (PEM) of the certificate that the backup was made for; the passphrase opens it, if "
                   "it is encrypted")
      ->type_name("FILE");
  restored->add_flag("--check", options->check, "only verify every digest, and the key where its secret is given");
  restored->add_flag("--json", options->json, "print what the backup holds as JSON");
  restored->footer(
      "Every digest is verified before anything is written. Then fluvial coordinator --restored begins a new history\n"
      "of the federation: what was committed after the backup is lost, nothing counts twice.\n"
      "Example:\n  fluvial restore /srv/backup/fluvial --data-dir /var/lib/fluvial --passphrase-file passphrase.txt\n"
      "  fluvial coordinator --data-dir /var/lib/fluvial --restored");
  restored->callback(
      [&commands, options] { commands.chosen = [&commands, options] { return restore(commands, *options); }; });
}

}  // namespace

void add_backup_commands(CLI::App& app, Commands& commands) {
  add_backup(app, commands);
  add_restore(app, commands);
}

}  // namespace fluvial::cli

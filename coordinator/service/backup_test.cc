#include "coordinator/service/backup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "coordinator/service/authorities.h"
#include "core/base/testing.h"
#include "core/digest/sha256.h"
#include "core/identity/authority.h"
#include "core/identity/own_key.h"
#include "core/identity/sealed_key.h"
#include "core/store/journal.h"
#include "core/store/journal_copy.h"

namespace fluvial::coordinator {
namespace {

using testing::HasSubstr;

constexpr std::string_view kPassphrase = "correct horse battery staple";

WallTime at(std::int64_t seconds) { return WallTime(std::chrono::seconds(seconds)); }
template <typename T>
Code code_of(const Result<T>& result) {
  return result.ok() ? Code{} : result.error().code;
}

// Something happens just before a file is opened: once, when it is armed.
class WatchedFiles final : public store::FileSystem {
 public:
  Result<std::unique_ptr<store::File>> open(const std::string& path, store::OpenMode mode) override {
    if (before_open && path.ends_with(suffix)) {
      const auto happens = std::move(before_open);
      before_open = nullptr;
      happens();
    }
    return files.open(path, mode);
  }
  Result<std::unique_ptr<store::File>> open_unnamed(const std::string& folder) override {
    return files.open_unnamed(folder);
  }
  Status rename(const std::string& from, const std::string& to) override { return files.rename(from, to); }
  Status remove(const std::string& path) override { return files.remove(path); }
  Result<bool> exists(const std::string& path) override { return files.exists(path); }
  Result<std::vector<std::string>> list(const std::string& folder) override { return files.list(folder); }
  Status make_folder(const std::string& path) override { return files.make_folder(path); }
  Status sync_folder(const std::string& path) override { return files.sync_folder(path); }

  std::string suffix;
  std::function<void()> before_open;
  store::PosixFileSystem files;
};

// A coordinator that has committed rounds, as far as its folder shows.
class Backup : public testing::Test {
 protected:
  Backup() {
    std::filesystem::create_directory(data_dir());
    journal_ = store::CoordinatorJournal::open(files_, data_dir() + "/journal.sqlite").value();
    EXPECT_TRUE(journal_->found({"clinics", at(1)}).ok());
    const WallTime now = SystemClock().wall_now();
    pin_ = identity::CertificateAuthority::create_or_open(data_dir() + "/ca", "clinics", now).value().pin();
    own_key_ = identity::PublicKey::of(identity::load_or_make_key(data_dir() + "/coordinator").value());
    models_.emplace(store::ModelStore::open(files_, data_dir() + "/models").value());
    store::RunRow run;
    run.schema = schema_;
    run.initial_model = put(0);
    run.created_at = at(3);
    EXPECT_TRUE(journal_->create_run(run).ok());
  }
  Digest put(std::uint64_t round) {
    const float values[] = {static_cast<float>(round), 2.0F};
    const Digest digest = store::model_digest(std::as_bytes(std::span(values)));
    EXPECT_TRUE(
        models_->put({RunId(1), ModelVersion(round)}, schema_, std::as_bytes(std::span(values)), digest, values).ok());
    return digest;
  }
  void commit(std::uint64_t round, std::uint64_t kept = 3) {
    round::AttemptRecord attempt{RunId(1), RoundId(round), AttemptId(1), Epoch(round), {}, 30, {}};
    attempt.participants = {{SiteId(1), Epoch(1), 1000}};
    ASSERT_TRUE(journal_->open_attempt(attempt).ok());
    store::CommitRow row;
    row.record.run = RunId(1);
    row.record.round = RoundId(round);
    row.record.attempt = AttemptId(1);
    row.participants_count = 1;
    row.record.model.digest = row.master = put(round);
    row.optimizer = store::ModelStore::name_of({RunId(1), ModelVersion(round)}, store::ModelFile::kOptimizer);
    row.committed_at = at(5);
    ASSERT_TRUE(journal_->commit(row).ok());
    ASSERT_TRUE(models_->prune(RunId(1), ModelVersion(round), kept).ok());
  }
  BackupRequest request() {
    return {.data_dir = data_dir(),
            .folder = folder(),
            .key = "none",
            .seal = identity::leave_unsealed,
            .copy_journal = [this] { return journal_->copy_to(data_dir() + "/" + kJournalCopyFile); }};
  }
  Result<BackupReport> back_up() { return make_backup(files_, request(), at(100)); }
  static Result<identity::PrivateKey> open_unsealed(const std::string&, std::string_view sealed) {
    return identity::open_unsealed(sealed);
  }
  Result<store::BackupManifest> restore(const OpenKey& key = open_unsealed) {
    return restore_backup(files_, folder(), restored(), key);
  }
  // What a coordinator would do with the restored folder at its start.
  void expect_restored(std::uint64_t round) {
    const auto journal = store::CoordinatorJournal::open(files_, restored() + "/journal.sqlite");
    ASSERT_TRUE(journal.ok()) << journal.error().message;
    const auto last = (*journal)->last_commit(RunId(1)).value();
    ASSERT_TRUE(last.has_value());
    EXPECT_EQ(last->record.round, RoundId(round));
    const auto models = store::ModelStore::open(files_, restored() + "/models").value();
    const auto model = models.load({RunId(1), ModelVersion(round)}, last->record.model.digest);
    EXPECT_TRUE(model.ok()) << model.error().message;
    EXPECT_TRUE(models.load_optimizer(last->optimizer, 2).ok());
    const WallTime now = SystemClock().wall_now();
    const auto authority = identity::CertificateAuthority::create_or_open(restored() + "/ca", "clinics", now);
    ASSERT_TRUE(authority.ok()) << authority.error().message;
    EXPECT_EQ(authority->pin(), pin_);
    const auto own = identity::PrivateKey::load(restored() + "/coordinator/key.pem");
    ASSERT_TRUE(own.ok()) << own.error().message;
    EXPECT_EQ(identity::PublicKey::of(*own), own_key_) << "what the coordinator signed is still its own";
  }
  std::string object_of(std::string_view path) {
    const auto backup = store::BackupFolder::open(files_, folder()).value();
    return backup.object_path(backup.manifest()->find(path)->sha256);
  }
  std::string data_dir() const { return temporary_.path() + "/coordinator"; }
  std::string folder() const { return temporary_.path() + "/backup"; }
  std::string restored() const { return temporary_.path() + "/restored"; }

  TemporaryFolder temporary_;
  WatchedFiles files_;
  round::Schema schema_ = round::Schema::make({{"w", round::DType::kF32, {2}}}).value();
  std::unique_ptr<store::CoordinatorJournal> journal_;
  std::optional<store::ModelStore> models_;
  std::string pin_;
  identity::PublicKey own_key_;
};

TEST_F(Backup, OfACoordinatorThatRunsIsRestored) {
  commit(1);
  commit(2);
  const auto made = back_up();
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(made->manifest.federation, "clinics");
  EXPECT_EQ(made->manifest.pin, pin_);
  EXPECT_FALSE(*files_.exists(data_dir() + "/" + kJournalCopyFile));
  commit(3);
  const auto done = restore();
  ASSERT_TRUE(done.ok()) << done.error().message;
  expect_restored(2);
}

TEST_F(Backup, OfARunByDifferencesHoldsWhatSitesTrainFrom) {
  store::RunRow run;
  run.plan.name = "differences";
  run.plan.down = "delta:int8";
  run.schema = schema_;
  const float values[] = {1.0F, 2.0F}, trained[] = {1.5F, 2.0F};
  const ByteSpan model = std::as_bytes(std::span(values)), other = std::as_bytes(std::span(trained));
  run.initial_model = store::model_digest(model);
  const RunId id = journal_->create_run(run).value();
  store::ModelWriter writer = std::move(*models_->begin({id, ModelVersion(1)}, schema_));
  ASSERT_TRUE(writer.write(0, model).ok());
  const store::TrainedFile file{other, store::model_digest(other)};
  ASSERT_TRUE(models_->keep(std::move(writer), run.initial_model, {}, file).ok());
  round::AttemptRecord attempt{id, RoundId(1), AttemptId(1), Epoch(1), {}, 30, {}};
  attempt.participants = {{SiteId(1), Epoch(1), 1000}};
  ASSERT_TRUE(journal_->open_attempt(attempt).ok());
  store::CommitRow row;
  row.record = {.run = id, .round = RoundId(1), .attempt = AttemptId(1), .model = {.digest = file.digest}};
  row.participants_count = 1;
  row.master = run.initial_model;
  ASSERT_TRUE(journal_->commit(row).ok());
  ASSERT_TRUE(back_up().ok());
  ASSERT_TRUE(restore().ok());
  const auto models = store::ModelStore::open(files_, restored() + "/models").value();
  EXPECT_TRUE(models.load({id, ModelVersion(1)}, row.master).ok());
  EXPECT_TRUE(models.load({id, ModelVersion(1)}, file.digest, store::ModelFile::kTrained).ok());
  // Damaged, it is no model to restore.
  Buffer damaged = Buffer::copy_of(model);
  ASSERT_TRUE(
      store::write_model(files_, data_dir() + "/models/run-2/round-1.trained.safetensors", schema_, damaged.span(), {})
          .ok());
  ASSERT_TRUE(std::filesystem::remove_all(folder()) > 0);
  EXPECT_FALSE(back_up().ok());
}

TEST_F(Backup, IsReadableByItsOwnerAlone) {
  commit(1);
  BackupRequest sealing = request();
  sealing.key = "passphrase";
  sealing.seal = [](const identity::PrivateKey& key) { return identity::seal_with_passphrase(key, kPassphrase); };
  ASSERT_TRUE(make_backup(files_, sealing, at(100)).ok());
  const auto open_sealed = [](const std::string& kind, std::string_view sealed) {
    EXPECT_EQ(kind, "passphrase");
    return identity::open_with_passphrase(sealed, kPassphrase);
  };
  ASSERT_TRUE(restore(open_sealed).ok());
  for (const std::string& top : {folder(), restored()}) {
    EXPECT_EQ(std::filesystem::status(top).permissions(), std::filesystem::perms::owner_all) << top;
  }
  const auto others = std::filesystem::perms::group_all | std::filesystem::perms::others_all;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder())) {
    EXPECT_EQ(entry.status().permissions() & others, std::filesystem::perms::none) << entry.path();
    if (!entry.is_regular_file()) continue;
    EXPECT_EQ(text_of_file(entry.path()).find("BEGIN PRIVATE KEY"), std::string::npos) << entry.path();
  }
}

TEST_F(Backup, OfAFolderWithoutTheCoordinatorsKeyIsRestoredAndAKeyIsMadeThere) {
  std::filesystem::remove_all(data_dir() + "/coordinator");
  commit(1);
  ASSERT_TRUE(back_up().ok());
  ASSERT_TRUE(restore().ok());
  EXPECT_FALSE(std::filesystem::exists(restored() + "/coordinator"));
}

TEST_F(Backup, ASecondOneCopiesOnlyModelsThatAreMissing) {
  commit(1);
  commit(2);
  const auto first = back_up();
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->models_kept, 0U);
  commit(3, 4);
  const auto second = back_up();
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_EQ(second->models_copied, 2U) << "round 3: its model and its optimizer's state";
  EXPECT_EQ(second->models_kept, 3U) << "the models of rounds 0 to 2";
  ASSERT_TRUE(restore().ok());
  expect_restored(3);
}

TEST_F(Backup, AModelThatIsNotWhatTheJournalNamesFailsIt) {
  commit(1);
  const float values[] = {7.0F, 8.0F};
  const ByteSpan bytes = std::as_bytes(std::span(values));
  ASSERT_TRUE(models_->put({RunId(1), ModelVersion(1)}, schema_, bytes, store::model_digest(bytes), values).ok());
  const auto refused = back_up();
  EXPECT_EQ(code_of(refused), Code::kDataLoss);
  EXPECT_THAT(refused.error().message, HasSubstr("models/run-1/round-1.safetensors"));
}

TEST_F(Backup, ModelsThatArePrunedMeanwhileAreInItAllTheSame) {
  commit(1);
  // The journal's copy needs round 1, and is held; the first model is not copied yet.
  files_.suffix = "incoming.tmp";
  files_.before_open = [this] {  // that of the journal itself
    files_.before_open = [this] {
      commit(2, 1);
      commit(3, 1);
    };
  };
  const auto made = back_up();
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_FALSE(*files_.exists(models_->path_of({RunId(1), ModelVersion(1)})));
  ASSERT_TRUE(restore().ok());
  expect_restored(1);
}

TEST_F(Backup, ThatCameTooLateForAModelTakesALaterJournal) {
  commit(1);
  files_.suffix = "models/run-1/round-1.safetensors";
  files_.before_open = [this] {
    commit(2, 1);
    files_.suffix = "models/run-1/round-2.optimizer.safetensors";
    files_.before_open = [this] { commit(3, 1); };
  };
  const auto made = back_up();
  ASSERT_TRUE(made.ok()) << made.error().message;
  ASSERT_TRUE(restore().ok());
  expect_restored(3);
}

TEST_F(Backup, AModelThatIsLostIsSaid) {
  commit(1);
  std::filesystem::remove(models_->path_of({RunId(1), ModelVersion(1)}));
  const auto made = back_up();
  EXPECT_EQ(code_of(made), Code::kNotFound);
  EXPECT_THAT(made.error().message, HasSubstr("round-1.safetensors"));
  EXPECT_EQ(code_of(store::BackupFolder::open(files_, folder())), Code::kNotFound) << "no backup is there";
}

TEST_F(Backup, OfAStoppedCoordinatorNeedsNobody) {
  commit(1);
  journal_.reset();
  BackupRequest stopped = request();
  stopped.copy_journal = [this] {
    return store::copy_journal(files_, data_dir() + "/journal.sqlite", data_dir() + "/" + kJournalCopyFile);
  };
  ASSERT_TRUE(make_backup(files_, stopped, at(100)).ok());
  ASSERT_TRUE(restore().ok());
  expect_restored(1);
  stopped.data_dir = temporary_.path() + "/elsewhere";
  EXPECT_EQ(code_of(make_backup(files_, stopped, at(100))), Code::kNotFound);
}

TEST_F(Backup, OfAnotherFederationIsNotWrittenOver) {
  commit(1);
  ASSERT_TRUE(back_up().ok());
  std::filesystem::remove_all(data_dir() + "/ca");
  ASSERT_TRUE(
      identity::CertificateAuthority::create_or_open(data_dir() + "/ca", "clinics", SystemClock().wall_now()).ok());
  const auto refused = back_up();
  EXPECT_EQ(code_of(refused), Code::kFailedPrecondition);
  EXPECT_THAT(refused.error().message, HasSubstr("another federation"));
}

class BackupRestore : public Backup {
 protected:
  BackupRestore() {
    commit(1);
    EXPECT_TRUE(back_up().ok());
  }
  void expect_untouched() { EXPECT_FALSE(*files_.exists(restored())) << "nothing was written"; }
};

TEST_F(BackupRestore, NothingIsWrittenWhenTheKeyDoesNotOpen) {
  const auto refused = restore([](const std::string&, std::string_view) -> Result<identity::PrivateKey> {
    return Error{Code::kUnauthenticated, "wrong passphrase"};
  });
  EXPECT_EQ(code_of(refused), Code::kUnauthenticated);
  expect_untouched();
}

TEST_F(BackupRestore, AKeyOfAnotherAuthorityIsRefused) {
  const auto other = identity::PrivateKey::generate().value();
  const auto refused = restore([&](const std::string&, std::string_view) { return Result(other); });
  EXPECT_EQ(code_of(refused), Code::kDataLoss);
  expect_untouched();
}

TEST_F(BackupRestore, DamageIsSeenBeforeAnythingIsWritten) {
  const std::string object = object_of("models/run-1/round-1.safetensors");
  std::filesystem::resize_file(object, std::filesystem::file_size(object) - 1);
  EXPECT_EQ(code_of(restore()), Code::kDataLoss);
  expect_untouched();
  std::filesystem::remove(object);
  const auto missing = check_backup(files_, folder(), nullptr);
  EXPECT_EQ(code_of(missing), Code::kDataLoss);
  EXPECT_THAT(missing.error().message, HasSubstr("models/run-1/round-1.safetensors"));
  EXPECT_EQ(code_of(restore_backup(files_, temporary_.path() + "/nowhere", restored(), nullptr)), Code::kNotFound);
}

TEST_F(BackupRestore, ALinkInABackupIsNotFollowed) {
  const std::string object = object_of("journal.sqlite");
  std::filesystem::rename(object, temporary_.path() + "/journal");
  std::filesystem::create_symlink(temporary_.path() + "/journal", object);
  const auto refused = restore();
  EXPECT_EQ(code_of(refused), Code::kDataLoss);
  EXPECT_THAT(refused.error().message, HasSubstr("neither file nor folder"));
  expect_untouched();
}

TEST_F(BackupRestore, AFolderThatIsNotEmptyIsLeftAlone) {
  std::filesystem::create_directories(restored() + "/lost+found");
  ASSERT_TRUE(restore().ok()) << "a disk of its own is empty with that";
  const auto again = restore();
  EXPECT_EQ(code_of(again), Code::kFailedPrecondition);
  EXPECT_THAT(again.error().message, HasSubstr("not empty"));
}

TEST_F(BackupRestore, TheFolderWaitsForTheNewHistory) {
  ASSERT_TRUE(restore().ok());
  const Status refused = check_restored(files_, restored(), false);
  EXPECT_EQ(code_of(refused), Code::kFailedPrecondition);
  EXPECT_THAT(refused.error().message, HasSubstr("--restored"));
  EXPECT_TRUE(check_restored(files_, restored(), true).ok());
  EXPECT_TRUE(check_restored(files_, data_dir(), false).ok());
}

TEST_F(BackupRestore, OneThatIsCutShortIsNotStarted) {
  files_.suffix = "/restored/journal.sqlite";
  bool cut = false;
  files_.before_open = [&] {
    cut = true;
    std::filesystem::remove_all(folder() + "/objects");  // the disk with the backup goes away
  };
  EXPECT_FALSE(restore().ok());
  ASSERT_TRUE(cut);
  for (const bool marking : {false, true}) {
    const Status refused = check_restored(files_, restored(), marking);
    EXPECT_EQ(code_of(refused), Code::kFailedPrecondition);
    EXPECT_THAT(refused.error().message, HasSubstr("cut short"));
  }
  const auto again = restore();
  EXPECT_EQ(code_of(again), Code::kFailedPrecondition);
  EXPECT_THAT(again.error().message, HasSubstr("cut short"));
}

TEST_F(Backup, InTheMiddleOfARolloverBringsItsKeysAndItsPhaseAndTheNextOneMayHaveAnotherPin) {
  commit(1);
  const telemetry::Logger log(std::make_shared<telemetry::CaptureSink>());
  const WallTime now = SystemClock().wall_now();
  const auto authorities = Authorities::open(*journal_, {data_dir(), "clinics"}, log, now).value();
  ASSERT_TRUE(back_up().ok());
  ASSERT_TRUE(authorities->begin({}, {}, now).ok());
  ASSERT_TRUE(authorities->issue(true, {}, now).ok());
  const std::string next = authorities->live()->current()->pin();
  const auto made = back_up();
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(made->manifest.pin, next);
  ASSERT_TRUE(restore().ok());

  const auto journal = store::CoordinatorJournal::open(files_, restored() + "/journal.sqlite").value();
  const auto again = Authorities::open(*journal, {restored(), "clinics"}, log, now);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ((*again)->view(now)->phase, RolloverPhase::kIssuing);
  EXPECT_EQ((*again)->live()->current()->pin(), next);
  ASSERT_NE((*again)->live()->current()->before(), nullptr);
  EXPECT_EQ((*again)->live()->current()->before()->pin(), pin_);
  EXPECT_TRUE((*again)->end(true, {}, now).ok());
}

TEST_F(Backup, WhenTheLastOneWasMadeIsNoted) {
  EXPECT_FALSE(last_backup(files_, data_dir()).has_value());
  ASSERT_TRUE(note_backup(files_, data_dir(), at(100)).ok());
  EXPECT_EQ(last_backup(files_, data_dir()), at(100));
  std::ofstream(data_dir() + "/last-backup") << "99999999999999999999999";
  EXPECT_FALSE(last_backup(files_, data_dir()).has_value());
}

}  // namespace
}  // namespace fluvial::coordinator

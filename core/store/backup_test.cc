#include "core/store/backup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "core/store/journal.h"
#include "core/store/journal_copy.h"
#include "core/store/journal_schema.h"
#include "core/store/memory_file_system.h"
#include "core/store/safetensors.h"
#include "core/store/sqlite.h"
#include "core/store/test_support.h"

namespace fluvial::store {
namespace {

using testing::HasSubstr;

constexpr const char* kBackupFolder = "/b";
constexpr const char* kModel3 = "models/run-1/round-3.safetensors";

template <typename T>
Code code_of(const Result<T>& result) {
  return result.ok() ? Code{} : result.error().code;
}

std::string model_file(std::string_view values) {
  const auto schema = round::Schema::make({{"w", round::DType::kF32, {values.size() / 4}}}).value();
  return format_model_header(schema, {}) + std::string(values);
}

BackupManifest manifest_of(std::vector<BackupFile> files) {
  BackupManifest manifest;
  manifest.fluvial = "0.2.0";
  manifest.federation = "clinics";
  manifest.pin = "sha256:" + to_hex(digest_of("pin"));
  manifest.created_at = "2026-01-31T12:00:00.123Z";
  manifest.journal_format = journal_format();
  manifest.key = "passphrase";
  manifest.runs = {{RunId(1), RunStatus::kRunning, RoundId(3)}, {RunId(2), RunStatus::kStopped, RoundId(9)}};
  manifest.files = std::move(files);
  return manifest;
}
BackupManifest sample() {
  return manifest_of({{"ca/ca-key.pem", 3, digest_of("key"), {}},
                      {"ca/ca.pem", 2, digest_of("ca"), {}},
                      {"coordinator/key.pem", 4, digest_of("own key"), {}},
                      {"journal.sqlite", 7, digest_of("journal"), {}},
                      {"models/run-1/round-3.optimizer.safetensors", 5, digest_of("state"), digest_of("m3")},
                      {kModel3, 6, digest_of("m3 file"), digest_of("m3")}});
}
Result<BackupManifest> read_back(const BackupManifest& manifest) {
  return manifest_from_json(manifest_to_json(manifest), "manifest.json");
}

TEST(BackupManifest, ReadsBackAsItWasWritten) {
  const auto read = read_back(sample());
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, sample());
  EXPECT_EQ(read->total_bytes(), 27U);
}

TEST(BackupManifest, NoByteOfItChangesUnseen) {
  const std::string text = manifest_to_json(sample());
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (const char flip : {'\x01', '\x10'}) {
      std::string other = text;
      other[i] = static_cast<char>(other[i] ^ flip);
      const auto read = manifest_from_json(other, "manifest.json");
      if (read.ok()) EXPECT_EQ(*read, sample()) << "byte " << i;
    }
    if (i + 1 == text.size()) break;  // the end of the line
    EXPECT_FALSE(manifest_from_json(text.substr(0, i), "manifest.json").ok()) << i << " bytes of it";
  }
}

TEST(BackupManifest, NamesNoFileThatACoordinatorsFolderHasNot) {
  for (const char* path :
       {"../journal.sqlite", "/etc/passwd", "ca/../../x", "models/../ca/ca-key.pem",
        "models/run-1/../round-3.safetensors", "models/run-1/round-3.safetensors/..",
        "models/run-01/round-3.safetensors", "models/run-1/round-3.safetensors.aside",
        "models/run-1/x/round-3.safetensors", "models//run-1/round-3.safetensors", "admin.sock", "ca/", ""}) {
    BackupManifest manifest = sample();
    manifest.files.push_back({path, 1, digest_of("x"), {}});
    const auto read = read_back(manifest);
    EXPECT_EQ(code_of(read), Code::kDataLoss) << path;
  }
}

TEST(BackupManifest, LacksNothingThatARestoreNeeds) {
  for (const char* path : {"ca/ca-key.pem", "ca/ca.pem", "journal.sqlite", kModel3}) {
    BackupManifest manifest = sample();
    std::erase_if(manifest.files, [&](const BackupFile& file) { return file.path == path; });
    const auto read = read_back(manifest);
    ASSERT_FALSE(read.ok()) << path;
    EXPECT_THAT(read.error().message, HasSubstr(path));
  }
  BackupManifest twice = sample();
  twice.files.push_back(twice.files.front());
  EXPECT_EQ(code_of(read_back(twice)), Code::kDataLoss);
}

TEST(BackupManifest, OfANewerVersionSaysSo) {
  BackupManifest newer = sample();
  newer.journal_format = journal_format() + 1;
  newer.fluvial = "9.1.0";
  const auto read = read_back(newer);
  EXPECT_EQ(code_of(read), Code::kFailedPrecondition);
  EXPECT_THAT(read.error().message, HasSubstr("9.1.0"));
  const auto format = manifest_from_json("{\"format\":3,\"layout\":\"another\"}", "manifest.json");
  EXPECT_EQ(code_of(format), Code::kFailedPrecondition);
  EXPECT_THAT(format.error().message, HasSubstr("newer Fluvial"));
}

// ---- the journal's copy

RunRow run_row() {
  return {RunId(),
          round::Plan{},
          round::Schema::make({{"w", round::DType::kF32, {1}}}).value(),
          digest_of("initial"),
          RunStatus::kRunning,
          "",
          at(3),
          RunId()};
}
void commit_round(CoordinatorJournal& journal, std::uint64_t round) {
  round::AttemptRecord attempt{RunId(1), RoundId(round), AttemptId(1), Epoch(round), {}, 30, {}};
  attempt.participants = {{SiteId(1), Epoch(1), 1000}};
  ASSERT_TRUE(journal.open_attempt(attempt).ok());
  CommitRow row;
  row.record.run = RunId(1);
  row.record.round = RoundId(round);
  row.record.attempt = AttemptId(1);
  row.participants_count = 1;
  row.record.model.digest = row.master = digest_of("model " + std::to_string(round));
  row.optimizer = "run-1/round-" + std::to_string(round) + ".optimizer.safetensors";
  row.committed_at = at(5);
  const Status kept = journal.commit(row);
  ASSERT_TRUE(kept.ok()) << kept.error().message;
}

TEST(JournalCopy, HoldsWhatOnlyTheLogHadAndLeavesTheJournalInUse) {
  MemoryFileSystem files;
  ASSERT_TRUE(files.make_folder("/c").ok());
  auto journal = CoordinatorJournal::open(files, "/c/journal.sqlite").value();
  ASSERT_TRUE(journal->found({"clinics", at(1)}).ok());
  ASSERT_TRUE(journal->create_run(run_row()).ok());
  commit_round(*journal, 1);
  commit_round(*journal, 2);
  ASSERT_TRUE(journal->copy_to("/c/copy").ok());
  EXPECT_TRUE(files.is_durable("/c/copy"));
  commit_round(*journal, 3);
  const auto content = read_journal_copy(files, "/c/copy");
  ASSERT_TRUE(content.ok()) << content.error().message;
  EXPECT_EQ(content->federation, "clinics");
  EXPECT_EQ(content->format, journal_format());
  ASSERT_EQ(content->runs.size(), 1U);
  EXPECT_EQ(content->runs[0].round, RoundId(2));
  EXPECT_EQ(content->runs[0].optimizer, "run-1/round-2.optimizer.safetensors");
  EXPECT_EQ(content->models.at({RunId(1), ModelVersion(0)}), digest_of("initial"));
  EXPECT_EQ(content->models.at({RunId(1), ModelVersion(2)}), digest_of("model 2"));
  ASSERT_TRUE(journal->copy_to("/c/copy").ok()) << "a second one replaces it";
  EXPECT_EQ(read_journal_copy(files, "/c/copy")->runs[0].round, RoundId(3));

  EXPECT_EQ(code_of(copy_journal(files, "/c/journal.sqlite", "/c/other")), Code::kFailedPrecondition) << "it is held";
  journal.reset();
  ASSERT_TRUE(copy_journal(files, "/c/journal.sqlite", "/c/other").ok());
  EXPECT_EQ(read_journal_copy(files, "/c/other")->runs[0].round, RoundId(3));
  EXPECT_EQ(code_of(copy_journal(files, "/c/none", "/c/other")), Code::kNotFound);
  EXPECT_FALSE(*files.exists("/c/none"));
}

TEST(JournalCopy, OfAnOlderVersionStaysOfThatVersion) {
  MemoryFileSystem files;
  ASSERT_TRUE(files.make_folder("/c").ok());
  const char* const first[] = {kJournalVersion1};
  {
    const auto old = Database::open(files, "/c/journal.sqlite", first, "nobody").value();
    ASSERT_TRUE(old->transact([&] { return old->run("INSERT INTO federation VALUES (1, 'old', 1)"); }).ok());
  }
  ASSERT_TRUE(copy_journal(files, "/c/journal.sqlite", "/c/copy").ok());
  const auto before = read_file(files, "/c/copy", 1 << 20).value();
  const auto content = read_journal_copy(files, "/c/copy");
  ASSERT_TRUE(content.ok()) << content.error().message;
  EXPECT_EQ(content->format, 1U);
  EXPECT_EQ(content->federation, "old");
  const auto after = read_file(files, "/c/copy", 1 << 20).value();
  EXPECT_EQ(as_text(before.span()), as_text(after.span())) << "reading changes nothing";
  const auto original = Database::open(files, "/c/journal.sqlite", first, "nobody");
  EXPECT_TRUE(original.ok()) << "nor does copying: that version can go on";
}

TEST(JournalCopy, OfADamagedJournalIsRefused) {
  MemoryFileSystem files;
  ASSERT_TRUE(files.make_folder("/c").ok());
  {
    auto journal = CoordinatorJournal::open(files, "/c/journal.sqlite").value();
    ASSERT_TRUE(journal->found({"clinics", at(1)}).ok());
    ASSERT_TRUE(journal->create_run(run_row()).ok());
    ASSERT_TRUE(journal->copy_to("/c/copy").ok());
  }
  {
    const auto file = files.open("/c/copy", OpenMode::kReadWrite).value();
    const Buffer junk = Buffer::copy_of(as_byte_span(std::string(4096, '\x5a')));
    ASSERT_TRUE(file->write_at(4096, junk.span()).ok());
  }
  EXPECT_FALSE(read_journal_copy(files, "/c/copy").ok());
}

// ---- the folder

// A backup of round `round`, made as the coordinator makes it; each holds the model of round 3.
Status back_up(FileSystem& files, std::uint64_t round) {
  FLUVIAL_ASSIGN(BackupFolder folder, BackupFolder::hold(files, kBackupFolder));
  BackupManifest manifest = manifest_of({});
  manifest.runs[0].round = RoundId(round);
  for (const char* path : {"ca/ca-key.pem", "ca/ca.pem", "journal.sqlite"}) {
    const std::string text = std::string(path) + " at " + std::to_string(round);
    FLUVIAL_ASSIGN(const BackupFile file, folder.add_bytes(as_byte_span(text), path));
    manifest.files.push_back(file);
  }
  for (std::uint64_t i = 3; i <= round; ++i) {
    const std::string path = "models/run-1/round-" + std::to_string(i) + ".safetensors";
    const std::string values = "values " + std::to_string(i);  // 8 bytes
    auto file = folder.find_before(path, digest_of(values));
    if (!file) {
      const std::string source = "/source-" + std::to_string(i);
      const std::string content = model_file(values);
      const ByteSpan parts[] = {as_byte_span(content)};
      FLUVIAL_TRY(write_file_atomically(files, source, parts));
      FLUVIAL_ASSIGN(const std::unique_ptr<File> from, files.open(source, OpenMode::kRead));
      FLUVIAL_ASSIGN(file, folder.add(*from, path, digest_of(values)));
    }
    manifest.files.push_back(*file);
  }
  return folder.publish(manifest);
}
RoundId round_of(const BackupFolder& folder) { return folder.manifest()->runs[0].round; }

TEST(BackupFolderTest, TakesTheModelThatItHoldsOnceAndDropsWhatNothingNames) {
  MemoryFileSystem files;
  ASSERT_TRUE(back_up(files, 3).ok());
  const auto first = BackupFolder::open(files, kBackupFolder).value();
  const std::string model = first.object_path(first.manifest()->find(kModel3)->sha256);
  const std::string journal = first.object_path(first.manifest()->find("journal.sqlite")->sha256);
  ASSERT_TRUE(files.remove("/source-3").ok());
  ASSERT_TRUE(back_up(files, 4).ok());
  EXPECT_FALSE(*files.exists("/source-3")) << "it was not read again";
  EXPECT_TRUE(*files.exists(model));
  EXPECT_FALSE(*files.exists(journal));
  const auto second = BackupFolder::open(files, kBackupFolder).value();
  EXPECT_EQ(round_of(second), RoundId(4));
  EXPECT_TRUE(second.verify().ok());
  EXPECT_EQ(files.list("/b/objects")->size(), second.manifest()->files.size());
  EXPECT_TRUE(second.find_before(kModel3, digest_of("values 3")).has_value());
  EXPECT_FALSE(second.find_before(kModel3, digest_of("of another history")).has_value());
  ASSERT_TRUE(files.open(model, OpenMode::kTruncate).ok());
  EXPECT_FALSE(second.find_before(kModel3, digest_of("values 3")).has_value()) << "it is cut short";
}

TEST(BackupFolderTest, ThatIsCutShortAnywhereIsTheBackupBeforeOrWhole) {
  for (const Unsynced unsynced : {Unsynced::kLost, Unsynced::kKept, Unsynced::kTorn}) {
    for (const bool is_first : {true, false}) {
      bool cut = true;
      for (std::uint64_t operation = 0; cut; ++operation) {
        MemoryFileSystem files;
        if (!is_first) ASSERT_TRUE(back_up(files, 3).ok());
        files.fail_at(operation, Fault::kCrash);
        const Status made = back_up(files, 4);
        cut = files.crashed();
        files.restart(unsynced, operation);
        const auto folder = BackupFolder::open(files, kBackupFolder);
        ASSERT_TRUE(folder.ok() || (is_first && !made.ok() && folder.error().code == Code::kNotFound))
            << "operation " << operation << ": " << folder.error().message;
        if (folder.ok()) {
          const Status whole = folder->verify();
          ASSERT_TRUE(whole.ok()) << "operation " << operation << ": " << whole.error().message;
          ASSERT_TRUE(!made.ok() || round_of(*folder) == RoundId(4)) << "operation " << operation;
        }
        const Status again = back_up(files, 5);
        ASSERT_TRUE(again.ok()) << "operation " << operation << ": " << again.error().message;
      }
    }
  }
}

TEST(BackupFolderTest, AFullDiskLeavesTheBackupBefore) {
  for (std::uint64_t operation = 0;; ++operation) {
    MemoryFileSystem files;
    ASSERT_TRUE(back_up(files, 3).ok());
    files.fail_at(operation, Fault::kShortWrite);
    const Status made = back_up(files, 4);
    files.clear_fault();
    const auto folder = BackupFolder::open(files, kBackupFolder);
    ASSERT_TRUE(folder.ok()) << operation;
    ASSERT_TRUE(folder->verify().ok()) << operation;
    if (made.ok()) break;
  }
}

TEST(BackupFolderTest, DamageIsSeenAndNamed) {
  const auto damage = [](const std::string& path,
                         const std::function<Status(MemoryFileSystem&, const std::string&)>& how) {
    MemoryFileSystem files;
    EXPECT_TRUE(back_up(files, 3).ok());
    const auto folder = BackupFolder::open(files, kBackupFolder).value();
    const BackupFile& file = *folder.manifest()->find(path);
    EXPECT_TRUE(how(files, folder.object_path(file.sha256)).ok());
    const Status whole = folder.verify();
    EXPECT_EQ(code_of(whole), Code::kDataLoss) << path;
    if (!whole.ok()) EXPECT_THAT(whole.error().message, HasSubstr(path));
    EXPECT_EQ(code_of(folder.copy_out(file, "/out/file")), Code::kDataLoss);
    EXPECT_FALSE(folder.read(file, 1 << 20).ok());
  };
  for (const char* path : {"ca/ca-key.pem", "journal.sqlite", kModel3}) {
    damage(path, [](MemoryFileSystem& files, const std::string& object) { return files.remove(object); });
    damage(path, [](MemoryFileSystem& files, const std::string& object) {
      const auto file = files.open(object, OpenMode::kReadWrite).value();
      return file->truncate(*file->size() - 1);
    });
    damage(path, [](MemoryFileSystem& files, const std::string& object) {
      const auto file = files.open(object, OpenMode::kReadWrite).value();
      return file->write_at(*file->size(), as_byte_span("x"));
    });
    damage(path, [](MemoryFileSystem& files, const std::string& object) {
      const auto file = files.open(object, OpenMode::kReadWrite).value();
      return file->write_at(*file->size() - 1, as_byte_span("\x7f"));
    });
  }
}

TEST(BackupFolderTest, AModelThatIsNotTheJournalsIsNotTakenIn) {
  MemoryFileSystem files;
  auto folder = BackupFolder::hold(files, kBackupFolder).value();
  const std::string content = model_file("values 3");
  const ByteSpan parts[] = {as_byte_span(content)};
  ASSERT_TRUE(write_file_atomically(files, "/source", parts).ok());
  const auto from = files.open("/source", OpenMode::kRead).value();
  EXPECT_TRUE(folder.add(*from, kModel3, digest_of("values 3")).ok());
  const auto refused = folder.add(*from, kModel3, digest_of("values 4"));
  EXPECT_EQ(code_of(refused), Code::kDataLoss);
  EXPECT_THAT(refused.error().message, HasSubstr(kModel3));
}

TEST(BackupFolderTest, ThatHoldsOtherThingsIsLeftAlone) {
  MemoryFileSystem files;
  ASSERT_TRUE(files.make_folder(kBackupFolder).ok());
  const ByteSpan parts[] = {as_byte_span("mine")};
  ASSERT_TRUE(write_file_atomically(files, "/b/thesis.txt", parts).ok());
  const auto refused = BackupFolder::hold(files, kBackupFolder);
  EXPECT_EQ(code_of(refused), Code::kFailedPrecondition);
  EXPECT_THAT(refused.error().message, HasSubstr("thesis.txt"));
  EXPECT_EQ(files.list(kBackupFolder)->size(), 1U);
  EXPECT_EQ(code_of(BackupFolder::open(files, "/nowhere")), Code::kNotFound);
}

TEST(BackupFolderTest, IsWrittenByOneAtATime) {
  MemoryFileSystem files;
  const auto held = BackupFolder::hold(files, kBackupFolder);
  ASSERT_TRUE(held.ok());
  EXPECT_EQ(code_of(BackupFolder::hold(files, kBackupFolder)), Code::kFailedPrecondition);
}

}  // namespace
}  // namespace fluvial::store

#include "core/store/audit_log.h"

#include <gmock/gmock.h>

#include <fstream>
#include <set>

#include "core/digest/sha256.h"
#include "core/store/journal.h"
#include "core/store/memory_file_system.h"
#include "core/store/sqlite.h"
#include "core/store/test_support.h"

namespace fluvial::store {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kAuditPath = "/c/journal.sqlite";

AuditEntry paused(std::uint64_t run) { return {.kind = AuditKind::kRunPaused, .run = RunId(run), .detail = "why"}; }

class AuditLogTest : public testing::Test {
 protected:
  AuditLogTest() {
    EXPECT_TRUE(files_.make_folder("/c").ok());
    crash_and_reopen();
  }
  void crash_and_reopen() {
    journal_.reset();
    files_.restart(Unsynced::kLost);
    auto opened = CoordinatorJournal::open(files_, kAuditPath);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    journal_ = std::move(*opened);
  }
  AuditLog log() { return AuditLog(*journal_); }
  void append(std::uint64_t entries) {
    for (std::uint64_t i = 1; i <= entries; ++i) {
      ASSERT_TRUE(log().append(paused(i), at(static_cast<std::int64_t>(i))).ok());
    }
  }
  std::vector<AuditRow> rows() { return log().rows(0, 1000).value(); }
  // Whoever can write the file runs `sql` on it.
  void bend(const char* sql) {
    journal_.reset();
    auto database = Database::open_as_it_is(files_, kAuditPath, "nobody");
    ASSERT_TRUE(database.ok()) << database.error().message;
    const Status done = (*database)->run(sql);
    ASSERT_TRUE(done.ok()) << done.error().message;
  }
  // What a look at the file finds; empty: nothing.
  std::string verdict(AuditChain chain = {}) {
    Status found = read_audit_log(files_, kAuditPath, [&](const AuditRow& row) { return chain.next(row); });
    if (found.ok()) found = chain.finish();
    checked_ = chain.checked();
    return found.ok() ? "" : found.error().message;
  }

  MemoryFileSystem files_;
  std::unique_ptr<CoordinatorJournal> journal_;
  std::uint64_t checked_ = 0;
};

TEST_F(AuditLogTest, KeepsEveryEntryInOrderAndFollowsItsChain) {
  EXPECT_EQ(log().head().value(), AuditHead());
  append(3);
  const AuditHead head = log().head().value();
  crash_and_reopen();
  const std::vector<AuditRow> found = rows();
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[1].number, 2U);
  EXPECT_EQ(found[1].at, at(2));
  EXPECT_EQ(found[1].entry, R"({"kind":"run-paused","by":"coordinator","run":2,"detail":"why"})");
  EXPECT_EQ(found[2].chain, audit_chain(found[1].chain, 3, at(3), found[2].entry));
  EXPECT_EQ(log().head().value(), head);
  EXPECT_EQ(head, (AuditHead{3, found[2].chain}));
  EXPECT_EQ(AuditHead::from_bytes(head.bytes()).value(), head);
  EXPECT_EQ(log().rows(1, 1).value(), std::vector<AuditRow>{found[1]});
  EXPECT_THAT(log().rows(~std::uint64_t{0}, ~std::uint64_t{0}).value(), IsEmpty());
  journal_.reset();
  EXPECT_EQ(verdict(), "");
  EXPECT_EQ(checked_, 3U);
}

TEST_F(AuditLogTest, TheChainIsTheOneOfTheFormat) {
  Sha256 sum;
  sum.update(Digest{});
  sum.update(as_byte_span(std::string_view("\x01\0\0\0\0\0\0\0\xe8\x03\0\0\0\0\0\0{}", 18)));
  EXPECT_EQ(audit_chain(Digest{}, 1, at(1), "{}"), sum.finish());
}

TEST_F(AuditLogTest, AnEntryAndItsChangeAreBothThereOrNeither) {
  const TokenRow token{"t", sha256(as_byte_span("t")), Role::kSite, "a", "", 1, at(2000), {}};
  const AuditEntry entry{.kind = AuditKind::kTokenMade, .token = "t"};
  ASSERT_TRUE(log().with(entry, at(1), [&] { return journal_->add_token(token); }).ok());
  EXPECT_EQ(rows().size(), 1U);
  const Status again = log().with(entry, at(2), [&] { return journal_->add_token(token); });
  EXPECT_EQ(again.error().code, Code::kAlreadyExists);
  EXPECT_EQ(rows().size(), 1U) << "what did not happen is not in the log";
  ASSERT_TRUE(journal_->revoke_token("t", at(3)).ok());
  EXPECT_EQ(rows().size(), 1U) << "the entry of before goes with no later change";
  EXPECT_TRUE(log().with(entry, at(4), [&] { return journal_->tokens(); }).ok());
  EXPECT_EQ(rows().size(), 2U) << "nothing was to be changed, and it is told all the same";
}

TEST_F(AuditLogTest, AnEntryIsWrittenOnce) {
  const auto token = [](const char* id) {
    return TokenRow{id, sha256(as_byte_span(id)), Role::kSite, id, "", 1, at(2000), {}};
  };
  const Status both = log().with({.kind = AuditKind::kTokenMade}, at(1), [&]() -> Status {
    FLUVIAL_TRY(journal_->add_token(token("a")));
    return journal_->add_token(token("b"));
  });
  ASSERT_TRUE(both.ok()) << both.error().message;
  EXPECT_EQ(rows().size(), 1U);
  ASSERT_TRUE(
      log()
          .with(paused(1), at(2), [&] { return log().with(paused(2), at(2), [&] { return journal_->tokens(); }); })
          .ok());
  EXPECT_EQ(rows().size(), 3U) << "one within another";
}

TEST(AuditLogOnABadDisk, KeepsBothOrNeither) {
  const TokenRow token{"t", sha256(as_byte_span("t")), Role::kSite, "a", "", 1, at(2000), {}};
  std::set<std::size_t> seen;
  for (std::uint64_t operation = 0; operation < 24; ++operation) {
    MemoryFileSystem files;
    ASSERT_TRUE(files.make_folder("/c").ok());
    auto journal = std::move(*CoordinatorJournal::open(files, kAuditPath));
    files.fail_at(operation, Fault::kCrash);
    const Status done =
        AuditLog(*journal).with({.kind = AuditKind::kTokenMade}, at(1), [&] { return journal->add_token(token); });
    journal.reset();
    files.restart(Unsynced::kTorn, operation);
    journal = std::move(*CoordinatorJournal::open(files, kAuditPath));
    const std::size_t entries = AuditLog(*journal).rows(0, 10)->size();
    EXPECT_EQ(journal->tokens()->size(), entries) << operation;
    EXPECT_GE(entries, done.ok() ? 1U : 0U) << operation;
    seen.insert(entries);
  }
  EXPECT_EQ(seen, (std::set<std::size_t>{0, 1}));
}

TEST_F(AuditLogTest, AnEntryThatWasBentIsNamed) {
  append(5);
  bend("UPDATE audit SET entry = replace(entry, 'why', 'who') WHERE number = 3");
  EXPECT_THAT(verdict(), HasSubstr("entry 3 is not what was written"));
}

TEST_F(AuditLogTest, ATimeThatWasBentIsNamed) {
  append(5);
  bend("UPDATE audit SET at = at + 1 WHERE number = 5");
  EXPECT_THAT(verdict(), HasSubstr("entry 5 is not what was written"));
}

TEST_F(AuditLogTest, AnEntryThatWasTakenOutIsNamed) {
  append(5);
  bend("DELETE FROM audit WHERE number IN (2, 3)");
  EXPECT_THAT(verdict(), HasSubstr("entry 2 is missing: entry 4 follows entry 1"));
}

TEST_F(AuditLogTest, EntriesThatWereExchangedAreNamed) {
  append(5);
  bend("UPDATE audit SET number = -number WHERE number IN (2, 3)");
  bend("UPDATE audit SET number = 5 + number WHERE number < 0");  // -2 is 3, -3 is 2
  EXPECT_THAT(verdict(), HasSubstr("entry 2 is not what was written"));
}

TEST_F(AuditLogTest, AMissingBeginningIsNamed) {
  append(5);
  bend("DELETE FROM audit WHERE number <= 3");
  EXPECT_THAT(verdict(), HasSubstr("entries 1 to 3 are missing"));
}

TEST_F(AuditLogTest, AnEntryThatIsKnownFindsAHistoryThatWasMadeAnewAndOneThatWasCut) {
  append(5);
  const AuditHead fourth{4, rows()[3].chain};
  EXPECT_EQ(verdict(AuditChain(fourth)), "a coordinator holds /c/journal.sqlite: stop it, or use another folder");
  journal_.reset();
  EXPECT_EQ(verdict(AuditChain(fourth)), "");
  EXPECT_EQ(checked_, 1U) << "those after it";

  // All chains are right again.
  bend("DELETE FROM audit WHERE number > 2");
  crash_and_reopen();
  ASSERT_TRUE(log().append(paused(99), at(3)).ok());
  journal_.reset();
  EXPECT_EQ(verdict(), "");
  EXPECT_THAT(verdict(AuditChain(fourth)), HasSubstr("entry 4 is not there: the log ends before it"));
  crash_and_reopen();
  ASSERT_TRUE(log().append(paused(99), at(4)).ok());
  journal_.reset();
  EXPECT_THAT(verdict(AuditChain(fourth)), HasSubstr("entry 4 is not the one that was known"));
}

TEST_F(AuditLogTest, SaysWhetherItHoldsAnEntryThatWasSigned) {
  append(5);
  const AuditHead third{3, rows()[2].chain};
  EXPECT_TRUE(log().check(third).ok());
  EXPECT_TRUE(log().check(AuditHead()).ok()) << "of when there was no entry";
  EXPECT_EQ(log().check({3, rows()[1].chain}).error().code, Code::kDataLoss);
  EXPECT_THAT(log().check({6, third.chain}).error().message, HasSubstr("entry 6 of the audit log is not there"));
  EXPECT_EQ(log().prune(at(4), at(100)).value(), 3U);
  EXPECT_TRUE(log().check(third).ok()) << "its chain is kept";
  EXPECT_TRUE(log().check({2, third.chain}).ok()) << "pruned";
}

TEST_F(AuditLogTest, PruningLeavesAChainThatGoesOn) {
  append(5);
  const std::vector<AuditRow> before = rows();
  EXPECT_EQ(log().prune(at(1), at(100)).value(), 0U) << "nothing is older";
  EXPECT_EQ(log().prune(at(4), at(100)).value(), 3U);
  const std::vector<AuditRow> after = rows();
  ASSERT_EQ(after.size(), 4U);
  EXPECT_EQ(after[0], (AuditRow{3, at(3), "", before[2].chain}));
  EXPECT_EQ(after[1], before[3]);
  EXPECT_EQ(after[3].entry, R"({"kind":"audit-pruned","by":"coordinator","detail":"entries 1 to 3"})");
  crash_and_reopen();
  journal_.reset();
  EXPECT_EQ(verdict(), "");
  EXPECT_EQ(checked_, 3U);
  EXPECT_EQ(verdict(AuditChain(AuditHead{3, before[2].chain})), "");
  EXPECT_THAT(verdict(AuditChain(AuditHead{2, before[1].chain})), HasSubstr("entry 2 is not there"));
  crash_and_reopen();
  EXPECT_EQ(log().prune(at(200), at(300)).value(), 3U) << "also the entry that told of the pruning before";
  EXPECT_EQ(rows().size(), 2U);
  ASSERT_TRUE(log().append(paused(1), at(301)).ok());
  EXPECT_EQ(log().head()->number, 8U);
  bend("UPDATE audit SET entry = '' WHERE number = 7");
  EXPECT_THAT(verdict(), HasSubstr("entry 7 is not what was written")) << "a log has one beginning";
}

TEST(AuditEntryText, SaysWhatIsKnownAndNothingElse) {
  EXPECT_EQ(audit_text({.kind = AuditKind::kStopped}), R"({"kind":"coordinator-stopped","by":"coordinator"})");
  const AuditEntry full{.kind = AuditKind::kRevoked,
                        .by = AuditBy::kUser,
                        .user = AuditUser{1001, 77, "al\"ice"},
                        .from = "unix",
                        .member = "hospital-a",
                        .node = NodeId(7),
                        .role = Role::kSite,
                        .serial = "ab",
                        .token = "cd",
                        .run = RunId(3),
                        .detail = "for good"};
  EXPECT_EQ(audit_text(full),
            R"({"kind":"revoked","by":"user","uid":1001,"pid":77,"user":"al\"ice","from":"unix","member":"hospital-a",)"
            R"("node":7,"role":"site","serial":"ab","token":"cd","run":3,"detail":"for good"})");
}

TEST(AuditEntryText, NamesThePersonOfACertificate) {
  EXPECT_EQ(audit_text({.kind = AuditKind::kTokenMade,
                        .by = AuditBy::kOperator,
                        .person = AuditOperator{"anna", NodeId(9), "a1b2"},
                        .from = "192.0.2.7:4711"}),
            R"({"kind":"token-made","by":"operator","operator":"anna","operator_node":9,"operator_serial":"a1b2",)"
            R"("from":"192.0.2.7:4711"})");
}

TEST(AuditEntryText, EveryKindHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (const AuditKindInfo& info : audit_kinds()) {
    EXPECT_EQ(audit_kind_name(info.kind), info.name);
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_FALSE(info.meaning.empty()) << info.name;
  }
}

TEST(AuditEntryText, TheOperatorsPageHasEveryKind) {
  std::ifstream file(FLUVIAL_SOURCE_DIR "/docs/operations/audit.md");
  const std::string page((std::istreambuf_iterator<char>(file)), {});
  std::string table = "| kind | what happened |\n|---|---|\n";
  for (const AuditKindInfo& info : audit_kinds()) {
    table += "| `" + std::string(info.name) + "` | " + std::string(info.meaning) + " |\n";
  }
  EXPECT_THAT(page, HasSubstr(table + "\n")) << table;
}

}  // namespace
}  // namespace fluvial::store

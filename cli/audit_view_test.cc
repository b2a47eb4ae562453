#include "cli/audit_view.h"

#include <gtest/gtest.h>

namespace fluvial::cli {
namespace {

WallTime at(std::int64_t seconds) { return WallTime(std::chrono::seconds(seconds)); }

store::AuditRow row(std::uint64_t number, const store::AuditEntry& entry) {
  return {number, at(1'000'000'000), store::audit_text(entry), Digest{}};
}

const store::AuditEntry kRevoked{.kind = store::AuditKind::kRevoked,
                                 .by = store::AuditBy::kUser,
                                 .user = store::AuditUser{1001, 77, "alice"},
                                 .from = "unix",
                                 .member = "hospital-a",
                                 .node = NodeId(7),
                                 .role = Role::kSite};

TEST(AuditView, SaysWhoDidWhatToWhom) {
  const AuditLine line = audit_line_of(row(3, kRevoked));
  EXPECT_EQ(line.kind, "revoked");
  EXPECT_EQ(audit_by(line), "alice (uid 1001, pid 77)");
  EXPECT_EQ(audit_what(line), "site hospital-a");
  const AuditLine run = audit_line_of(row(4, {.kind = store::AuditKind::kRunFinished, .run = RunId(2)}));
  EXPECT_EQ(audit_by(run), "coordinator");
  EXPECT_EQ(audit_what(run), "run 2");
  EXPECT_EQ(audit_what(audit_line_of(row(5, {.kind = store::AuditKind::kTokenRevoked, .token = "3f"}))), "token 3f");
  store::AuditEntry nameless = kRevoked;
  nameless.user->name.clear();
  EXPECT_EQ(audit_by(audit_line_of(row(6, nameless))), "user (uid 1001, pid 77)");
  const store::AuditEntry remote{.kind = store::AuditKind::kRevoked,
                                 .by = store::AuditBy::kOperator,
                                 .person = store::AuditOperator{"anna", NodeId(9), "a1b2"}};
  EXPECT_EQ(audit_by(audit_line_of(row(7, remote))), "anna (operator 9, serial a1b2)");
}

TEST(AuditView, ReadsWhatTheCoordinatorAnswers) {
  const store::AuditRow known = row(3, kRevoked);
  const json::object answer{{"number", 3},
                            {"at_ms", known.at.time_since_epoch().count()},
                            {"entry", known.entry},
                            {"chain", to_hex(known.chain)}};
  EXPECT_EQ(audit_row_of(answer).value(), known);
  EXPECT_EQ(audit_row_of(json::object{{"number", 3}}).error().code, Code::kDataLoss);
}

TEST(AuditView, ShowsWhatIsAskedFor) {
  const AuditLine line = audit_line_of(row(3, kRevoked));
  EXPECT_TRUE(is_shown({}, line));
  EXPECT_TRUE(is_shown({{"enrolled", "revoked"}, "hospital-a", at(1'000'000'000)}, line));
  EXPECT_FALSE(is_shown({{"enrolled"}, "", {}}, line));
  EXPECT_FALSE(is_shown({{}, "hospital-b", {}}, line));
  EXPECT_FALSE(is_shown({{}, "", at(1'000'000'001)}, line));
}

TEST(AuditView, ABentEntryIsShownAsFarAsItCanBe) {
  const AuditLine line = audit_line_of({3, at(0), "{", Digest{}});
  EXPECT_EQ(line.kind, "unknown");
  EXPECT_EQ(audit_what(line), "-");
  EXPECT_EQ(audit_object(line).at("number"), 3);
  EXPECT_EQ(audit_line_of({3, at(0), "", Digest{}}).kind, "pruned");
}

TEST(AuditView, ATimeIsOneOrAnAge) {
  const WallTime now = at(1'000'000'000);
  EXPECT_EQ(audit_since("2h", now).value(), now - std::chrono::hours(2));
  EXPECT_EQ(audit_since("2001-09-09T01:46:40Z", at(5)).value(), now);
  EXPECT_EQ(audit_since("1970-01-02", now).value(), at(86'400));
  for (const char* bad : {"", "yesterday", "2001-09-09T01:46", "-1h"}) EXPECT_FALSE(audit_since(bad, now).ok()) << bad;
  EXPECT_EQ(audit_time(at(1'000'000'000) + std::chrono::milliseconds(7)), "2001-09-09T01:46:40.007Z");
}

}  // namespace
}  // namespace fluvial::cli

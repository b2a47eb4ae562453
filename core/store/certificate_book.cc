#include "core/store/certificate_book.h"

#include <fmt/chrono.h>

#include <utility>

#include "core/store/certificate_rows.h"
#include "core/store/journal.h"

namespace fluvial::store {
namespace {

// Of a certificate whose end is not known: no authority lives longer.
constexpr std::chrono::days kLongest{20 * 365};

constexpr const char* kColumns =
    "SELECT serial, node, key, issued_at, ends_at, used_at, refused_since, refused_why FROM certificates ";

CertificateRow certificate_from(const SqlRow& row) {
  const ByteSpan key = row.bytes(2);
  return {row.text(0), row.id<NodeId>(1),    {key.begin(), key.end()}, row.time(3),
          row.time(4), row.optional_time(5), row.optional_time(6),     row.text(7)};
}

Result<std::vector<CertificateRow>> certificates_where(Database& database, const char* condition,
                                                       SqlValues values = {}) {
  std::vector<CertificateRow> found;
  const std::string sql = std::string(kColumns) + condition;
  FLUVIAL_TRY(database.query(sql.c_str(), values, [&](const SqlRow& row) -> Status {
    found.push_back(certificate_from(row));
    return {};
  }));
  return found;
}

Result<std::optional<CertificateRow>> certificate_where(Database& database, const char* condition, SqlValue value) {
  FLUVIAL_ASSIGN(std::vector<CertificateRow> found, certificates_where(database, condition, {value}));
  if (found.empty()) return std::optional<CertificateRow>();
  return std::optional(std::move(found.front()));
}

constexpr const char* kCurrent = "WHERE serial = (SELECT certificate_serial FROM nodes WHERE id = ?) AND node = ?1";

Status write_seen(Database& database, const CertificateShown& shown, WallTime now) {
  FLUVIAL_TRY(note_current_certificate(database, shown.node));
  FLUVIAL_TRY(
      database.run("INSERT INTO certificates VALUES (?, ?, ?, ?, ?, ?, NULL, '') ON CONFLICT (serial) DO UPDATE "
                   "SET key = excluded.key, ends_at = excluded.ends_at, used_at = coalesce(used_at, excluded.used_at)",
                   {shown.serial, shown.node, shown.key, now, shown.ends_at, now}));
  return {};
}

}  // namespace

Status bump_denials(Database& database) {
  return database.run("INSERT INTO counters VALUES ('denials', 1) ON CONFLICT (name) DO UPDATE SET value = value + 1");
}

Status note_current_certificate(Database& database, NodeId node) {
  const std::int64_t longest = std::chrono::milliseconds(kLongest).count();
  return database.run(
      "INSERT OR IGNORE INTO certificates SELECT certificate_serial, id, x'', enrolled_at, enrolled_at + ?, NULL, "
      "NULL, '' FROM nodes WHERE id = ? AND certificate_serial != ''",
      {longest, node});
}

Status issue_certificate(Database& database, const NodeRow& node, const NewCertificate& issued) {
  FLUVIAL_TRY(check_new_key(database, issued.key));
  FLUVIAL_TRY(note_current_certificate(database, node.id));  // the one before
  if (issued.key.empty()) return {};
  // The serial tells token and key: a row that is there already is of this certificate.
  return database.run("INSERT INTO certificates VALUES (?, ?, ?, ?, ?, NULL, NULL, '') ON CONFLICT (serial) DO NOTHING",
                      {node.certificate_serial, node.id, issued.key, node.enrolled_at, issued.ends_at});
}

Status check_new_key(Database& database, ByteSpan key) {
  if (key.empty()) return {};
  FLUVIAL_ASSIGN(
      const auto refused,
      certificates_where(database, "WHERE key = ? AND refused_since IS NOT NULL ORDER BY refused_since", {key}));
  for (const CertificateRow& row : refused) {
    if (!row.refuses_key()) continue;
    return Error{Code::kUnauthenticated,
                 fmt::format("this key was {} at {:%Y-%m-%d %H:%M:%S} UTC with certificate {} of node {} and stays "
                             "refused: enrol with another key (remove the folder identity/ and enrol again)",
                             row.refused_why, std::chrono::floor<std::chrono::seconds>(*row.refused_since), row.serial,
                             row.node.value())};
  }
  return {};
}

Status refuse_certificates(Database& database, NodeId node, const char* why, WallTime now) {
  FLUVIAL_TRY(note_current_certificate(database, node));
  return database.run(
      "UPDATE certificates SET refused_since = ?, refused_why = ? WHERE node = ? AND refused_why IN ('', 'superseded')",
      {now, std::string_view(why), node});
}

Result<bool> CertificateBook::saw(const CertificateShown& shown, WallTime now) {
  const std::lock_guard lock(journal_.mutex_);
  Database& database = *journal_.database_;
  FLUVIAL_ASSIGN(const auto known, certificate_where(database, "WHERE serial = ?", shown.serial));
  if (known && known->node != shown.node) {
    return Error{Code::kUnauthenticated, "certificate " + shown.serial + " is another member's"};
  }
  if (known && known->used_at && !known->key.empty()) return false;
  bool refused_more = false;
  FLUVIAL_TRY(journal_.change([&]() -> Status {
    FLUVIAL_TRY(write_seen(database, shown, now));
    FLUVIAL_ASSIGN(const auto current, database.scalar("SELECT id FROM nodes WHERE id = ? AND certificate_serial = ?",
                                                       {shown.node, shown.serial}));
    if (!current) return {};
    FLUVIAL_TRY(
        database.run("UPDATE certificates SET refused_since = ?, refused_why = ? WHERE node = ? AND serial != ? AND "
                     "refused_why = ''",
                     {now, std::string_view(kRefusedSuperseded), shown.node, shown.serial}));
    refused_more = database.changes() > 0;
    return refused_more ? bump_denials(database) : Status();
  }));
  return refused_more;
}

Result<std::optional<CertificateRow>> CertificateBook::find(const std::string& serial) {
  const std::lock_guard lock(journal_.mutex_);
  return certificate_where(*journal_.database_, "WHERE serial = ?", serial);
}

Result<std::vector<CertificateRow>> CertificateBook::of_key(ByteSpan key) {
  const std::lock_guard lock(journal_.mutex_);
  return certificates_where(*journal_.database_, "WHERE key = ? ORDER BY issued_at, serial", {key});
}

Result<std::optional<CertificateRow>> CertificateBook::current_of(NodeId node) {
  const std::lock_guard lock(journal_.mutex_);
  return certificate_where(*journal_.database_, kCurrent, node);
}

Result<std::vector<CertificateRow>> CertificateBook::all() {
  const std::lock_guard lock(journal_.mutex_);
  return certificates_where(*journal_.database_, "ORDER BY node, issued_at, serial");
}

Result<std::vector<CertificateRow>> CertificateBook::refused(WallTime now) {
  const std::lock_guard lock(journal_.mutex_);
  return certificates_where(*journal_.database_,
                            "WHERE refused_since IS NOT NULL AND ends_at > ? ORDER BY node, issued_at, serial", {now});
}

Result<std::uint64_t> CertificateBook::denials_number() {
  const std::lock_guard lock(journal_.mutex_);
  FLUVIAL_ASSIGN(const auto number, journal_.database_->scalar("SELECT value FROM counters WHERE name = 'denials'"));
  return static_cast<std::uint64_t>(number.value_or(0));
}

}  // namespace fluvial::store

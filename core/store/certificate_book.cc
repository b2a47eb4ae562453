#include "core/store/certificate_book.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <utility>

#include "core/digest/sha256.h"
#include "core/store/certificate_rows.h"
#include "core/store/journal.h"

namespace fluvial::store {
namespace {

// Of a certificate whose end is not known: no authority lives longer.
constexpr std::chrono::days kLongest{20 * 365};
// Then nobody can show it any more, and the audit log alone knows of it.
constexpr std::chrono::days kKeptAfterEnd{30};

constexpr const char* kColumns =
    "SELECT serial, node, key, issued_at, ends_at, used_at, refused_since, refused_why, renews, authority FROM "
    "certificates ";

CertificateRow certificate_from(const SqlRow& row) {
  const ByteSpan key = row.bytes(2);
  const ByteSpan authority = row.bytes(9);
  return {row.text(0),
          row.id<NodeId>(1),
          {key.begin(), key.end()},
          row.time(3),
          row.time(4),
          row.optional_time(5),
          row.optional_time(6),
          row.text(7),
          row.text(8),
          {authority.begin(), authority.end()}};
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

constexpr const char* kInsert =
    "INSERT INTO certificates (serial, node, key, issued_at, ends_at, renews, authority) VALUES (?, ?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (serial) DO NOTHING";

// Of a key that is certified anew every few hours.
Status forget_ended(Database& database, NodeId node, WallTime now) {
  return database.run(
      "DELETE FROM certificates WHERE node = ? AND ends_at < ? AND refused_why IN ('', 'superseded') AND serial NOT IN "
      "(SELECT certificate_serial FROM nodes WHERE id = ?1)",
      {node, now - kKeptAfterEnd});
}

Status write_seen(Database& database, const CertificateShown& shown, WallTime now) {
  FLUVIAL_TRY(note_current_certificate(database, shown.node));
  FLUVIAL_TRY(database.run(
      "INSERT INTO certificates (serial, node, key, issued_at, ends_at, used_at) VALUES (?, ?, ?, ?, ?, ?) "
      "ON CONFLICT (serial) DO UPDATE "
      "SET key = excluded.key, ends_at = excluded.ends_at, used_at = coalesce(used_at, excluded.used_at)",
      {shown.serial, shown.node, shown.key, shown.issued_at == WallTime() ? now : shown.issued_at, shown.ends_at,
       now}));
  return {};
}

enum class Standing { kOther, kCurrent, kAdopted };

// Whether it is a certificate of the member's key, or one that a restore has lost and that came after what the journal
// has. Then it is the member's current one from now on, if it is the newest.
Result<Standing> standing_of(Database& database, const CertificateShown& shown, bool known,
                             const std::optional<CertificateRow>& current) {
  if (!current) return Standing::kOther;
  const bool same_key = std::ranges::equal(current->key, shown.key);
  const bool later = shown.issued_at >= std::chrono::floor<std::chrono::seconds>(current->issued_at);  // it has no more
  if (current->serial == shown.serial) return Standing::kCurrent;
  if (!same_key && (known || !shown.adopt || !later)) return Standing::kOther;
  if (!known && later) {
    FLUVIAL_TRY(database.run("UPDATE nodes SET certificate_serial = ? WHERE id = ?", {shown.serial, shown.node}));
  }
  return known || same_key ? Standing::kCurrent : Standing::kAdopted;
}

Result<bool> is_denied(Database& database, const char* kind, ByteSpan value) {
  FLUVIAL_ASSIGN(const auto there,
                 database.scalar("SELECT 1 FROM denied WHERE kind = ? AND value = ?", {std::string_view(kind), value}));
  return there.has_value();
}

Result<bool> deny(Database& database, const char* kind, ByteSpan value) {
  FLUVIAL_TRY(database.run("INSERT OR IGNORE INTO denied VALUES (?, ?)", {std::string_view(kind), value}));
  return database.changes() > 0;
}

constexpr const char* kDeniedKey = "key";        // the SHA-256 of a public key
constexpr const char* kDeniedSerial = "serial";  // its text

}  // namespace

Status bump_denials(Database& database) {
  return database.run("INSERT INTO counters VALUES ('denials', 1) ON CONFLICT (name) DO UPDATE SET value = value + 1");
}

Status note_current_certificate(Database& database, NodeId node) {
  const std::int64_t longest = std::chrono::milliseconds(kLongest).count();
  return database.run(
      "INSERT OR IGNORE INTO certificates (serial, node, key, issued_at, ends_at) SELECT certificate_serial, id, x'', "
      "enrolled_at, enrolled_at + ? FROM nodes WHERE id = ? AND certificate_serial != ''",
      {longest, node});
}

Status issue_certificate(Database& database, const NodeRow& node, const NewCertificate& issued) {
  FLUVIAL_TRY(check_new_key(database, issued.key));
  FLUVIAL_TRY(note_current_certificate(database, node.id));  // the one before
  if (issued.key.empty()) return {};
  // The serial tells token and key: a row that is there already is of this certificate.
  return database.run(kInsert, {node.certificate_serial, node.id, issued.key, node.enrolled_at, issued.ends_at,
                                std::string_view(), issued.authority});
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
  FLUVIAL_ASSIGN(const bool denied, is_denied(database, kDeniedKey, sha256(key)));
  if (!denied) return {};
  return Error{Code::kUnauthenticated,
               "this key was revoked after the backup that this coordinator was restored from: enrol with another key "
               "(remove the folder identity/ and enrol again)"};
}

Status refuse_certificates(Database& database, NodeId node, const char* why, WallTime now) {
  FLUVIAL_TRY(note_current_certificate(database, node));
  return database.run(
      "UPDATE certificates SET refused_since = ?, refused_why = ? WHERE node = ? AND refused_why IN ('', 'superseded')",
      {now, std::string_view(why), node});
}

Result<CertificateSeen> CertificateBook::saw(const CertificateShown& shown, WallTime now) {
  const std::lock_guard lock(journal_.mutex_);
  Database& database = *journal_.database_;
  FLUVIAL_ASSIGN(const auto known, certificate_where(database, "WHERE serial = ?", shown.serial));
  if (known && known->node != shown.node) {
    return Error{Code::kUnauthenticated, "certificate " + shown.serial + " is another member's"};
  }
  if (known && shown.adopt && !known->key.empty()) {
    // Then whoever may be newer than the journal is let through, and this one is not.
    FLUVIAL_ASSIGN(const auto current, certificate_where(database, kCurrent, shown.node));
    if (current && !std::ranges::equal(current->key, known->key)) {
      return Error{Code::kUnauthenticated,
                   "certificate " + shown.serial + " is of a key that a later enrolment has replaced: enrol again"};
    }
  }
  if (known && known->used_at && !known->key.empty()) return CertificateSeen{};
  CertificateSeen seen;
  FLUVIAL_TRY(journal_.change([&]() -> Status {
    FLUVIAL_TRY(write_seen(database, shown, now));
    FLUVIAL_ASSIGN(const auto current, certificate_where(database, kCurrent, shown.node));
    FLUVIAL_ASSIGN(const Standing standing, standing_of(database, shown, known.has_value(), current));
    if (standing == Standing::kOther) return {};
    seen.adopted = standing == Standing::kAdopted;
    FLUVIAL_TRY(
        database.run("UPDATE certificates SET refused_since = ?, refused_why = ? WHERE node = ? AND key != ? AND "
                     "refused_why = ''",
                     {now, std::string_view(kRefusedSuperseded), shown.node, shown.key}));
    seen.refuses_more = database.changes() > 0;
    return seen.refuses_more ? bump_denials(database) : Status();
  }));
  return seen;
}

Status CertificateBook::renewed(const RenewedCertificate& issued, WallTime now) {
  const std::lock_guard lock(journal_.mutex_);
  Database& database = *journal_.database_;
  return journal_.change([&]() -> Status {
    FLUVIAL_TRY(check_new_key(database, issued.key));
    FLUVIAL_TRY(note_current_certificate(database, issued.node));
    // Of a member from before the keys were kept: whoever renews has shown it.
    FLUVIAL_TRY(database.run("UPDATE certificates SET key = ? WHERE serial = ? AND node = ? AND key = x''",
                             {issued.key, issued.renews, issued.node}));
    FLUVIAL_ASSIGN(const auto current, certificate_where(database, kCurrent, issued.node));
    if (!current || !std::ranges::equal(current->key, issued.key)) {
      return Error{Code::kUnauthenticated, "the member has enrolled anew since, with another key"};
    }
    FLUVIAL_TRY(database.run(kInsert, {issued.serial, issued.node, issued.key, issued.issued_at, issued.ends_at,
                                       issued.renews, issued.authority}));
    FLUVIAL_TRY(database.run("UPDATE nodes SET certificate_serial = ? WHERE id = ? AND revoked_at IS NULL",
                             {issued.serial, issued.node}));
    if (database.changes() == 0) return Error{Code::kUnauthenticated, "the member was revoked"};
    return forget_ended(database, issued.node, now);
  });
}

Result<bool> CertificateBook::take_over(const Refusals& earlier, WallTime before, WallTime now) {
  const std::lock_guard lock(journal_.mutex_);
  Database& database = *journal_.database_;
  bool more = false;
  FLUVIAL_TRY(journal_.change([&]() -> Status {
    for (const Digest& key : earlier.keys) {
      FLUVIAL_ASSIGN(const bool added, deny(database, kDeniedKey, key));
      more = more || added;
    }
    for (const std::string& serial : earlier.serials) {
      FLUVIAL_ASSIGN(const bool added, deny(database, kDeniedSerial, as_byte_span(serial)));
      more = more || added;
    }
    for (const NodeId node : earlier.nodes) {  // who has enrolled since the restore is another matter
      FLUVIAL_TRY(
          database.run("UPDATE nodes SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL AND enrolled_at < ?",
                       {now, node, before}));
      if (database.changes() == 0) continue;
      more = true;
      FLUVIAL_TRY(refuse_certificates(database, node, kRefusedRevoked, now));
    }
    return more ? bump_denials(database) : Status();
  }));
  return more;
}

Result<WallTime> CertificateBook::restored_at() {
  const std::lock_guard lock(journal_.mutex_);
  FLUVIAL_ASSIGN(const auto when, journal_.database_->scalar("SELECT max(began_at) FROM histories"));
  return time_of(when.value_or(0));
}

Result<Refusals> CertificateBook::taken_over() {
  const std::lock_guard lock(journal_.mutex_);
  Refusals refusals;
  FLUVIAL_TRY(journal_.database_->query("SELECT kind, value FROM denied", {}, [&](const SqlRow& row) -> Status {
    if (row.text(0) == kDeniedSerial) {
      refusals.serials.insert(std::string(as_text(row.bytes(1))));
      return {};
    }
    FLUVIAL_ASSIGN(const Digest key, digest_from_bytes(row.bytes(1)));
    refusals.keys.insert(key);
    return {};
  }));
  return refusals;
}

Result<std::vector<CertificateRow>> CertificateBook::current() {
  const std::lock_guard lock(journal_.mutex_);
  return certificates_where(*journal_.database_,
                            "WHERE key != x'' AND EXISTS (SELECT 1 FROM nodes WHERE id = certificates.node AND "
                            "certificate_serial = certificates.serial) ORDER BY node");
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

Result<std::vector<CertificateRow>> CertificateBook::of_member(NodeId node) {
  const std::lock_guard lock(journal_.mutex_);
  return certificates_where(*journal_.database_, "WHERE node = ? ORDER BY issued_at, serial", {node});
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

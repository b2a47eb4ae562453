#include "core/store/audit_log.h"

#include <algorithm>
#include <mutex>
#include <optional>

#include "core/digest/sha256.h"
#include "core/store/journal.h"
#include "core/store/sqlite.h"

namespace fluvial::store {
namespace {

constexpr std::uint64_t kPrunedAtOnce = 4096;  // a commit waits for no more than this
constexpr std::size_t kHeadBytes = 40;
constexpr const char* kRows = "SELECT number, at, entry, chain FROM audit WHERE number > ? ORDER BY number LIMIT ?";

// As signed as SQLite's, so that it never fits a number that the table holds.
SqlValue count_of(std::uint64_t count) { return static_cast<std::int64_t>(std::min(count, std::uint64_t{INT64_MAX})); }

Result<AuditHead> head_of(Database& database) {
  AuditHead head;
  FLUVIAL_TRY(database.query("SELECT number, chain FROM audit ORDER BY number DESC LIMIT 1", {},
                             [&](const SqlRow& row) -> Status {
                               head.number = row.number(0);
                               FLUVIAL_ASSIGN(head.chain, row.digest(1));
                               return {};
                             }));
  return head;
}

Result<AuditRow> row_from(const SqlRow& row) {
  AuditRow found{row.number(0), row.time(1), row.text(2), {}};
  Result<Digest> chain = digest_from_bytes(row.bytes(3));
  if (!chain.ok()) {
    return Error{Code::kDataLoss, "entry " + std::to_string(found.number) + " was changed: its chain has another size"};
  }
  found.chain = *chain;
  return found;
}

thread_local void* waiting = nullptr;  // the innermost AuditLog::Joined of this thread

std::string named(std::uint64_t number) { return "entry " + std::to_string(number); }

}  // namespace

// ---- the chain ----------------------------------------------------------------------------------------------------

std::array<std::byte, 40> AuditHead::bytes() const {
  std::array<std::byte, kHeadBytes> bytes{};
  store_le<std::uint64_t>(bytes.data(), number);
  std::ranges::copy(chain, bytes.begin() + 8);
  return bytes;
}

Result<AuditHead> AuditHead::from_bytes(ByteSpan bytes) {
  if (bytes.size() != kHeadBytes) return Error{Code::kInvalidArgument, "the head of an audit log has 40 bytes"};
  AuditHead head{load_le<std::uint64_t>(bytes.data()), {}};
  std::ranges::copy(bytes.subspan(8), head.chain.begin());
  return head;
}

Digest audit_chain(const Digest& previous, std::uint64_t number, WallTime at, std::string_view entry) {
  std::array<std::byte, 16> fixed{};
  store_le<std::uint64_t>(fixed.data(), number);
  store_le<std::uint64_t>(fixed.data() + 8, static_cast<std::uint64_t>(at.time_since_epoch().count()));
  Sha256 sum;
  sum.update(previous);
  sum.update(fixed);
  sum.update(as_byte_span(entry));
  return sum.finish();
}

Status AuditChain::begin(const AuditRow& row) {
  if (known_) {
    if (row.number > known_->number) {
      return Error{Code::kDataLoss, named(known_->number) + " is not there: the log begins with " + named(row.number)};
    }
    if (row.number == known_->number && row.chain != known_->chain) {
      return Error{Code::kDataLoss,
                   named(row.number) + " is not the one that was known: it or one before it was changed"};
    }
    return {};
  }
  if (row.number != 1 && !row.entry.empty()) {
    return Error{Code::kDataLoss, row.number == 2 ? "entry 1 is missing"
                                                  : "entries 1 to " + std::to_string(row.number - 1) + " are missing"};
  }
  return {};
}

Status AuditChain::next(const AuditRow& row) {
  if (known_ && row.number < known_->number) return {};
  if (!begun_) {
    FLUVIAL_TRY(begin(row));
    begun_ = true;
    if (known_ || row.entry.empty()) {  // taken as it is
      head_ = {row.number, row.chain};
      return {};
    }
  } else if (row.number != head_.number + 1) {
    return Error{Code::kDataLoss,
                 named(head_.number + 1) + " is missing: " + named(row.number) + " follows " + named(head_.number)};
  }
  if (audit_chain(head_.chain, row.number, row.at, row.entry) != row.chain) {
    return Error{Code::kDataLoss,
                 named(row.number) + " is not what was written: it, its time or its place was changed"};
  }
  head_ = {row.number, row.chain};
  ++checked_;
  return {};
}

Status AuditChain::finish() const {
  if (!known_ || begun_ || *known_ == AuditHead()) return {};
  return Error{Code::kDataLoss, named(known_->number) + " is not there: the log ends before it"};
}

// ---- writing ------------------------------------------------------------------------------------------------------

AuditLog::Joined::Joined(CoordinatorJournal& of, const AuditEntry& entry, WallTime when)
    : journal(of), text(audit_text(entry)), at(when), outer(static_cast<Joined*>(waiting)) {
  waiting = this;
}

AuditLog::Joined::~Joined() { waiting = outer; }

Status AuditLog::Joined::finish() {
  if (written) return {};
  const std::lock_guard lock(journal.mutex_);
  return journal.change([]() -> Status { return {}; });
}

AuditLog::Joined* AuditLog::waiting_for(const CoordinatorJournal& journal) {
  auto* joined = static_cast<Joined*>(waiting);
  return joined != nullptr && &joined->journal == &journal && !joined->written ? joined : nullptr;
}

Status AuditLog::write(Database& database, WallTime at, std::string_view text) {
  FLUVIAL_ASSIGN(const AuditHead head, head_of(database));
  const std::uint64_t number = head.number + 1;
  return database.run("INSERT INTO audit VALUES (?, ?, ?, ?)",
                      {number, at, text, audit_chain(head.chain, number, at, text)});
}

Status AuditLog::append(const AuditEntry& entry, WallTime at) { return Joined(journal_, entry, at).finish(); }

// ---- reading ------------------------------------------------------------------------------------------------------

Result<AuditHead> AuditLog::head() {
  const std::lock_guard lock(journal_.mutex_);
  return head_of(*journal_.database_);
}

Status AuditLog::check(const AuditHead& known) {
  if (known == AuditHead()) return {};
  const std::lock_guard lock(journal_.mutex_);
  Database& database = *journal_.database_;
  std::optional<Digest> chain;
  FLUVIAL_TRY(database.query("SELECT chain FROM audit WHERE number = ?", {count_of(known.number)},
                             [&](const SqlRow& row) -> Status {
                               FLUVIAL_ASSIGN(chain, row.digest(0));
                               return {};
                             }));
  if (chain && *chain == known.chain) return {};
  if (chain) return Error{Code::kDataLoss, named(known.number) + " of the audit log is not the one that was known"};
  FLUVIAL_ASSIGN(const auto anchor, database.scalar("SELECT min(number) FROM audit WHERE entry = ''"));
  if (anchor && known.number < static_cast<std::uint64_t>(*anchor)) return {};
  return Error{Code::kDataLoss, named(known.number) + " of the audit log is not there"};
}

Result<std::vector<AuditRow>> AuditLog::rows(std::uint64_t after, std::uint64_t limit) {
  const std::lock_guard lock(journal_.mutex_);
  std::vector<AuditRow> found;
  FLUVIAL_TRY(journal_.database_->query(kRows, {count_of(after), count_of(limit)}, [&](const SqlRow& row) -> Status {
    FLUVIAL_ASSIGN(AuditRow one, row_from(row));
    found.push_back(std::move(one));
    return {};
  }));
  return found;
}

// The last one that goes stays as a row without its entry: the next one's chain is over its chain.
Result<std::uint64_t> AuditLog::prune(WallTime since, WallTime now) {
  const std::lock_guard lock(journal_.mutex_);
  Database& database = *journal_.database_;
  FLUVIAL_ASSIGN(const auto first, database.scalar("SELECT min(number) FROM audit WHERE entry <> ''"));
  FLUVIAL_ASSIGN(const auto stays,
                 database.scalar("SELECT min(number) FROM audit WHERE entry <> '' AND at >= ?", {since}));
  FLUVIAL_ASSIGN(const AuditHead head, head_of(database));
  if (!first) return std::uint64_t{0};
  const std::uint64_t begin = static_cast<std::uint64_t>(*first);
  const std::uint64_t end = stays ? static_cast<std::uint64_t>(*stays) : head.number + 1;
  const std::uint64_t count = std::min(end - begin, kPrunedAtOnce);
  if (count == 0) return std::uint64_t{0};
  const std::uint64_t last = begin + count - 1;
  FLUVIAL_TRY(journal_.change([&]() -> Status {
    FLUVIAL_TRY(database.run("DELETE FROM audit WHERE number < ?", {last}));
    FLUVIAL_TRY(database.run("UPDATE audit SET entry = '' WHERE number = ?", {last}));
    return write(database, now,
                 audit_text({.kind = AuditKind::kPruned,
                             .detail = "entries " + std::to_string(begin) + " to " + std::to_string(last)}));
  }));
  return count;
}

Status read_audit_log(FileSystem& files, const std::string& path, const std::function<Status(const AuditRow&)>& visit) {
  FLUVIAL_ASSIGN(const std::unique_ptr<Database> database, Database::open_as_it_is(files, path, "a coordinator"));
  FLUVIAL_ASSIGN(const auto there,
                 database->scalar("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'audit'"));
  if (!there) {
    return Error{Code::kFailedPrecondition, path + " has no audit log: an older version of Fluvial wrote it"};
  }
  return database->query(kRows, {0, std::int64_t{INT64_MAX}}, [&](const SqlRow& row) -> Status {
    FLUVIAL_ASSIGN(const AuditRow one, row_from(row));
    return visit(one);
  });
}

}  // namespace fluvial::store

// The audit log: who did what to the federation, in the order in which it was done. Rows are only added, and each holds
// a hash over itself and the one before (docs/formats/journal.md), so none can be changed, taken out or exchanged
// without every later one. Over the journal's table `audit`.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/clock.h"
#include "core/store/audit_entry.h"
#include "core/store/file_system.h"

namespace fluvial::store {

class CoordinatorJournal;
class Database;

// The last entry. An empty log: 0, and a chain of zeros.
struct AuditHead {
  std::uint64_t number = 0;
  Digest chain{};
  bool operator==(const AuditHead&) const = default;

  // For statements that are signed: the number, 8 bytes, little-endian, then the chain.
  std::array<std::byte, 40> bytes() const;
  static Result<AuditHead> from_bytes(ByteSpan bytes);  // kInvalidArgument unless 40 bytes
};

struct AuditRow {
  std::uint64_t number = 0;  // 1, 2, ...
  WallTime at;
  std::string
      entry;  // as audit_text() made it; empty: what came before it is pruned, and of itself only the chain kept
  Digest chain{};
  bool operator==(const AuditRow&) const = default;
};

// SHA-256(previous chain || number || at || entry): number and milliseconds since 1970 as 8 bytes, little-endian.
Digest audit_chain(const Digest& previous, std::uint64_t number, WallTime at, std::string_view entry);

// Follows a log row by row, ascending. Pure.
class AuditChain {
 public:
  AuditChain() = default;
  // From an entry that is known: the first row must be that one. What was before it is not looked at.
  explicit AuditChain(AuditHead known) : known_(known) {}

  // kDataLoss names the row that is missing, or that is not what was once written.
  Status next(const AuditRow& row);
  // Once there are no more rows: kDataLoss when the known entry was not among them.
  Status finish() const;
  const AuditHead& head() const { return head_; }
  std::uint64_t checked() const { return checked_; }  // rows, without one that only begins a pruned log

 private:
  Status begin(const AuditRow& row);
  std::optional<AuditHead> known_;
  AuditHead head_;
  bool begun_ = false;
  std::uint64_t checked_ = 0;
};

// A view of the journal, made wherever it is needed. Thread safe through the journal's mutex. Blocking, and durable
// when it returns, as the journal's own methods are.
class AuditLog {
 public:
  explicit AuditLog(CoordinatorJournal& journal) : journal_(journal) {}

  Status append(const AuditEntry& entry, WallTime at);

  // Does `change`, a call of one of the journal's methods that change something, and returns what it returns. The entry
  // is written in the first transaction that it makes: both are there, or neither. When it makes none and succeeds, the
  // entry is written after it.
  template <typename Change>
  auto with(const AuditEntry& entry, WallTime at, const Change& change) -> decltype(change()) {
    Joined joined(journal_, entry, at);
    auto done = change();
    if (!done.ok()) return done;
    if (Status written = joined.finish(); !written.ok()) return written.error();
    return done;
  }

  Result<AuditHead> head();
  // Whether the log still holds this entry, which somebody has signed or kept. kDataLoss: it was changed or cut off.
  // One that is pruned cannot be asked about any more, and passes.
  Status check(const AuditHead& known);
  // Those after number `after`, ascending, at most `limit`.
  Result<std::vector<AuditRow>> rows(std::uint64_t after, std::uint64_t limit);
  // Prunes at most a few thousand of the oldest entries, those from before `since`; what was pruned becomes an entry.
  // Returns how many.
  Result<std::uint64_t> prune(WallTime since, WallTime now);

 private:
  friend class CoordinatorJournal;
  // An entry that waits for a transaction of this thread.
  class Joined {
   public:
    Joined(CoordinatorJournal& journal, const AuditEntry& entry, WallTime at);
    ~Joined();
    Joined(const Joined&) = delete;
    Joined& operator=(const Joined&) = delete;
    Status finish();

    CoordinatorJournal& journal;
    const std::string text;
    const WallTime at;
    bool written = false;
    Joined* const outer;
  };
  static Joined* waiting_for(const CoordinatorJournal& journal);
  static Status write(Database& database, WallTime at, std::string_view text);

  CoordinatorJournal& journal_;
};

// Every row of the journal at `path`, which no coordinator holds, ascending, until `visit` returns an error. The file
// may be a copy. kNotFound when there is none; kFailedPrecondition when a coordinator holds it or an older version,
// which had no audit log, wrote it.
Status read_audit_log(FileSystem& files, const std::string& path, const std::function<Status(const AuditRow&)>& visit);

}  // namespace fluvial::store

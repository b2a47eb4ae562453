// The journal itself: opened, copied, changed; the federation's founding, and epochs. Members: journal_members.cc and
// journal_tokens.cc. Runs: journal_runs.cc. Rounds: journal_attempts.cc, and journal_commits.cc.
#include "core/store/journal.h"

#include <thread>
#include <utility>

#include "core/store/audit_log.h"
#include "core/store/journal_members.h"
#include "core/store/journal_schema.h"
#include "core/store/sqlite.h"

namespace fluvial::store {

CoordinatorJournal::CoordinatorJournal(std::unique_ptr<Database> database) : database_(std::move(database)) {}
CoordinatorJournal::~CoordinatorJournal() = default;

Result<std::unique_ptr<CoordinatorJournal>> CoordinatorJournal::open(FileSystem& files, const std::string& path) {
  FLUVIAL_ASSIGN(std::unique_ptr<Database> database, Database::open(files, path, kJournalSteps, "another coordinator"));
  return std::unique_ptr<CoordinatorJournal>(new CoordinatorJournal(std::move(database)));
}

Status CoordinatorJournal::copy_to(const std::string& path) {
  std::unique_lock lock(mutex_);
  return database_->copy_to(path, [&lock] {
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  });
}

Status CoordinatorJournal::change(const std::function<Status()>& body) {
  AuditLog::Joined* const entry = AuditLog::waiting_for(*this);
  const Status done = database_->transact([&]() -> Status {
    FLUVIAL_TRY(body());
    return entry == nullptr ? Status() : AuditLog::write(*database_, entry->at, entry->text);
  });
  if (entry != nullptr) entry->written = done.ok();
  const bool of_the_disk =
      !done.ok() && (done.error().code == Code::kUnavailable || done.error().code == Code::kResourceExhausted ||
                     done.error().code == Code::kDataLoss);
  const std::lock_guard lock(fault_mutex_);
  if (done.ok()) fault_.reset();
  if (of_the_disk) fault_ = done.error();
  return done;
}

std::optional<Error> CoordinatorJournal::fault() const {
  const std::lock_guard lock(fault_mutex_);
  return fault_;
}

Status CoordinatorJournal::found(const FederationRow& federation) {
  const std::lock_guard lock(mutex_);
  return change([&]() -> Status {
    FLUVIAL_ASSIGN(const auto there, database_->scalar("SELECT one FROM federation"));
    if (there) return Error{Code::kAlreadyExists, "the federation was founded before"};
    return database_->run("INSERT INTO federation VALUES (1, ?, ?)", {federation.name, federation.created_at});
  });
}

Result<std::optional<FederationRow>> CoordinatorJournal::federation() {
  const std::lock_guard lock(mutex_);
  std::optional<FederationRow> found;
  FLUVIAL_TRY(database_->query("SELECT name, created_at FROM federation", {}, [&](const SqlRow& row) -> Status {
    found = FederationRow{row.text(0), row.time(1)};
    return {};
  }));
  return found;
}

Result<Epoch> CoordinatorJournal::next_epoch() {
  const std::lock_guard lock(mutex_);
  Epoch epoch;
  FLUVIAL_TRY(change([&]() -> Status {
    FLUVIAL_ASSIGN(const std::uint64_t value, bump(*database_, "epoch"));
    epoch = Epoch(value);
    return {};
  }));
  return epoch;
}

}  // namespace fluvial::store

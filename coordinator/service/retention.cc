#include "coordinator/service/retention.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "core/store/audit_log.h"

namespace fluvial::coordinator {
namespace {
namespace asio = boost::asio;
constexpr std::uint64_t kCommitsBetween = 64;
constexpr auto kInterval = std::chrono::hours(1);
}  // namespace

Retention::Retention(tree::Runtime& runtime, store::CoordinatorJournal& journal,
                     const config::CoordinatorSettings& settings)
    : runtime_(runtime),
      journal_(journal),
      keep_rounds_(settings.keep_rounds),
      keep_rounds_days_(settings.keep_rounds_days),
      keep_audit_days_(settings.keep_audit_days),
      bytes_(runtime.metrics.gauge("journal_bytes")),
      free_bytes_(runtime.metrics.gauge("journal_free_bytes")),
      rounds_(runtime.metrics.gauge("journal_rounds")),
      timer_(runtime.strand) {
  // The same token with the same key gives the same certificate again, as long as that is valid.
  if (settings.keep_tokens_days > 0) {
    keep_tokens_days_ = std::chrono::days(
        std::max<std::int64_t>(static_cast<std::int64_t>(settings.keep_tokens_days),
                               std::chrono::ceil<std::chrono::days>(settings.certificate_validity()).count()));
  } else {
    keep_tokens_days_ = std::chrono::days(0);
  }
}

net::Awaitable<void> Retention::run() {
  while (!stopping_) {
    commits_ = 0;
    co_await sweep();
    if (stopping_ || commits_ >= kCommitsBetween) continue;
    timer_.expires_after(kInterval);
    co_await timer_.async_wait(asio::as_tuple(asio::use_awaitable));
  }
}

void Retention::committed() {
  if (++commits_ >= kCommitsBetween) timer_.cancel();
}

void Retention::stop() {
  stopping_ = true;
  timer_.cancel();
}

net::Awaitable<void> Retention::sweep() {
  const WallTime now = runtime_.clock.wall_now();
  const Result<std::uint64_t> rounds = co_await prune_rounds(now);
  note("old rounds pruned", "rounds", rounds);
  if (keep_tokens_days_.count() > 0) {
    const WallTime since = now - keep_tokens_days_;
    const Result<std::uint64_t> tokens = co_await runtime_.pool.run([&] { return journal_.prune_tokens(since); });
    note("old tokens pruned", "tokens", tokens);
  }
  if (keep_audit_days_.count() > 0) {
    const Result<std::uint64_t> entries = co_await prune_audit_log(now);
    note("old audit entries pruned", "entries", entries);
  }
  co_await measure();
}

void Retention::note(std::string_view done, std::string_view what, const Result<std::uint64_t>& pruned) {
  if (!pruned.ok()) {
    runtime_.log.warn("the journal could not be pruned; it is tried again later",
                      {{"reason", pruned.error().to_string()}});
  } else if (*pruned > 0) {
    runtime_.log.info(done, {{what, *pruned}});
  }
}

// Batch by batch: between two of them whoever waits for the journal has it.
net::Awaitable<Result<std::uint64_t>> Retention::prune_rounds(WallTime now) {
  store::KeptRounds kept{keep_rounds_, {}};
  if (keep_rounds_days_.count() > 0) kept.committed_since = now - keep_rounds_days_;
  std::uint64_t all = 0;
  while (!stopping_) {
    const Result<std::uint64_t> batch = co_await runtime_.pool.run([&] { return journal_.prune_rounds(kept); });
    if (!batch.ok()) co_return batch.error();
    if (*batch == 0) break;
    all += *batch;
  }
  co_return all;
}

net::Awaitable<Result<std::uint64_t>> Retention::prune_audit_log(WallTime now) {
  std::uint64_t all = 0;
  while (!stopping_) {
    const Result<std::uint64_t> batch =
        co_await runtime_.pool.run([&] { return store::AuditLog(journal_).prune(now - keep_audit_days_, now); });
    if (!batch.ok()) co_return batch.error();
    if (*batch == 0) break;
    all += *batch;
  }
  co_return all;
}

net::Awaitable<void> Retention::measure() {
  const Result<store::JournalSize> size = co_await runtime_.pool.run([&] { return journal_.size(); });
  if (!size.ok()) co_return;
  bytes_.set(static_cast<double>(size->bytes));
  free_bytes_.set(static_cast<double>(size->free_bytes));
  rounds_.set(static_cast<double>(size->rounds));
}

}  // namespace fluvial::coordinator

#include "coordinator/service/admin/context.h"

#include <boost/asio/awaitable.hpp>
#include <utility>
#include <vector>

#include "coordinator/service/admin/request.h"
#include "core/store/audit_log.h"

namespace fluvial::coordinator::admin {

void Context::set_last_backup(std::optional<WallTime> made) {
  last_backup = made;
  if (made) last_backup_seconds.set(static_cast<double>(made->time_since_epoch().count()) / 1000.0);
}

net::Awaitable<Status> Context::record(store::AuditEntry entry) {
  const WallTime when = runtime.clock.wall_now();
  const Status kept = co_await runtime.pool.run([&] { return store::AuditLog(journal).append(entry, when); });
  if (kept.ok()) co_return kept;
  runtime.log.error("an act could not be written into the audit log; it was done all the same",
                    {{"act", store::audit_kind_name(entry.kind)}, {"reason", kept.error().to_string()}});
  co_return Error{kept.error().code, "it was done, but the audit log does not say so: " + kept.error().message};
}

net::Awaitable<Result<RunId>> Context::run_or_latest(std::string text) {
  if (!text.empty() && text != "latest") {
    const Result<std::uint64_t> number = to_number("run", text);
    if (!number.ok()) co_return number.error();
    const Result<store::RunRow> row = co_await runtime.pool.run([&] { return journal.run(RunId(*number)); });
    if (!row.ok()) co_return row.error();
    co_return row->id;
  }
  const Result<std::vector<store::RunRow>> rows = co_await runtime.pool.run([&] { return journal.runs(); });
  if (!rows.ok()) co_return rows.error();
  if (rows->empty()) co_return Error{Code::kNotFound, "no run yet; start one: fluvial run start plan.toml"};
  co_return rows->back().id;
}

}  // namespace fluvial::coordinator::admin

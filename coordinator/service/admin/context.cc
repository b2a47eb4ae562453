#include "coordinator/service/admin/context.h"

#include <boost/asio/awaitable.hpp>
#include <utility>
#include <vector>

#include "coordinator/service/admin/request.h"

namespace fluvial::coordinator::admin {

void Context::set_last_backup(std::optional<WallTime> made) {
  last_backup = made;
  if (made) last_backup_seconds.set(static_cast<double>(made->time_since_epoch().count()) / 1000.0);
}

net::Awaitable<Result<RunId>> Context::run_or_latest(std::string text) {
  if (!text.empty() && text != "latest") {
    const Result<std::uint64_t> number = to_number("run", text);
    if (!number.ok()) co_return number.error();
    co_return RunId(*number);
  }
  const Result<std::vector<store::RunRow>> rows = co_await runtime.pool.run([&] { return journal.runs(); });
  if (!rows.ok()) co_return rows.error();
  if (rows->empty()) co_return Error{Code::kNotFound, "no run yet; start one: fluvial run start plan.toml"};
  co_return rows->back().id;
}

}  // namespace fluvial::coordinator::admin

// The admin API's part in a backup: the journal's copy, which only the process that holds the journal can make.
#include <boost/json.hpp>
#include <utility>

#include "coordinator/service/admin.h"
#include "coordinator/service/backup.h"
#include "coordinator/service/json.h"

namespace fluvial::coordinator {

namespace json = boost::json;

net::Awaitable<Admin::Reply> Admin::copy_journal() {
  if (copying_) co_return Error{Code::kUnavailable, "another backup is being made at this moment: try again"};
  copying_ = true;
  const std::string path = store::join_path(facts_.data_dir, kJournalCopyFile);
  const Status copied = co_await runtime_.pool.run([&] { return journal_.copy_to(path); });
  copying_ = false;
  if (!copied.ok()) {
    runtime_.log.error("the journal could not be copied for a backup", {{"reason", copied.error().to_string()}});
    co_return copied.error();
  }
  co_return json::serialize(json::object{{"journal", path}, {"pin", facts_.pin}});
}

net::Awaitable<Admin::Reply> Admin::backup_made(std::string body) {
  boost::system::error_code failure;
  const json::value value = json::parse(body, failure);
  const json::value* ms = !failure && value.is_object() ? value.as_object().if_contains("made_at_ms") : nullptr;
  if (ms == nullptr || !ms->is_int64()) {
    co_return Error{Code::kInvalidArgument, "made_at_ms: expected milliseconds since 1970"};
  }
  const WallTime made{std::chrono::milliseconds(ms->as_int64())};
  const Status noted = co_await runtime_.pool.run([&] { return note_backup(runtime_.files, facts_.data_dir, made); });
  if (!noted.ok()) co_return noted.error();
  set_last_backup(made);
  runtime_.log.info("backup made", {{"made_at", utc(made)}});
  co_return json::serialize(json::object{{"last_backup", utc(made)}});
}

void Admin::set_last_backup(std::optional<WallTime> made) {
  last_backup_ = made;
  if (made) last_backup_seconds_.set(static_cast<double>(made->time_since_epoch().count()) / 1000.0);
}

}  // namespace fluvial::coordinator

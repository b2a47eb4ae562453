// The admin API's part in a backup: the journal's copy, which only the process that holds the journal can make.
#include "coordinator/service/backup.h"

#include <boost/asio/awaitable.hpp>
#include <boost/json.hpp>
#include <utility>

#include "coordinator/service/admin/resources.h"
#include "coordinator/service/json.h"

namespace fluvial::coordinator::admin {
namespace {

namespace json = boost::json;

net::Awaitable<Reply> copy_journal(Context* admin, Call) {
  if (admin->copying) co_return Error{Code::kUnavailable, "another backup is being made at this moment: try again"};
  admin->copying = true;
  const std::string path = store::join_path(admin->facts.data_dir, kJournalCopyFile);
  const Status copied = co_await admin->runtime.pool.run([&] { return admin->journal.copy_to(path); });
  admin->copying = false;
  if (!copied.ok()) {
    admin->runtime.log.error("the journal could not be copied; this backup fails",
                             {{"reason", copied.error().to_string()}});
    co_return copied.error();
  }
  co_return json::serialize(json::object{{"journal", path}, {"pin", admin->facts.pin}});
}

net::Awaitable<Reply> note_made(Context* admin, Call call) {
  boost::system::error_code failure;
  const json::value value = json::parse(call.request.body, failure);
  const json::value* ms = !failure && value.is_object() ? value.as_object().if_contains("made_at_ms") : nullptr;
  if (ms == nullptr || !ms->is_int64()) {
    co_return Error{Code::kInvalidArgument, "made_at_ms: expected milliseconds since 1970"};
  }
  const WallTime made{std::chrono::milliseconds(ms->as_int64())};
  const Status noted =
      co_await admin->runtime.pool.run([&] { return note_backup(admin->runtime.files, admin->facts.data_dir, made); });
  if (!noted.ok()) co_return noted.error();
  admin->set_last_backup(made);
  admin->runtime.log.info("backup made", {{"made_at", utc(made)}});
  store::AuditEntry entry = call.entry(store::AuditKind::kBackedUp);
  entry.detail = "of " + utc(made);
  const Status recorded = co_await admin->record(std::move(entry));
  if (!recorded.ok()) co_return recorded.error();
  co_return json::serialize(json::object{{"last_backup", utc(made)}});
}

}  // namespace

void add_backup(Router& router) {
  router.post("/v1/backup", copy_journal);
  router.post("/v1/backup/made", note_made);
}

}  // namespace fluvial::coordinator::admin

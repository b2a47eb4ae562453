// The audit log, page by page.
#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/json.hpp>
#include <utility>
#include <vector>

#include "coordinator/service/admin/resources.h"
#include "coordinator/service/json.h"
#include "core/store/audit_log.h"

namespace fluvial::coordinator::admin {
namespace {

namespace json = boost::json;
constexpr std::uint64_t kEntriesMax = 1'000;

net::Awaitable<Reply> list_audit(Context* admin, Call call) {
  const Result<std::uint64_t> after = call.number("after", 0);
  const Result<std::uint64_t> limit = call.number("limit", kEntriesMax);
  if (!after.ok()) co_return after.error();
  if (!limit.ok()) co_return limit.error();
  Result<std::string> text = co_await admin->runtime.pool.run([&]() -> Reply {
    store::AuditLog log(admin->journal);
    FLUVIAL_ASSIGN(const std::vector<store::AuditRow> rows, log.rows(*after, std::min(*limit, kEntriesMax)));
    FLUVIAL_ASSIGN(const store::AuditHead head, log.head());
    json::array entries;
    for (const store::AuditRow& row : rows) {
      entries.push_back({{"number", row.number},
                         {"at", utc(row.at)},
                         {"at_ms", row.at.time_since_epoch().count()},
                         {"entry", row.entry},
                         {"chain", to_hex(row.chain)}});
    }
    return json::serialize(json::object{{"head", json::object{{"number", head.number}, {"chain", to_hex(head.chain)}}},
                                        {"entries", std::move(entries)}});
  });
  co_return text;
}

}  // namespace

void add_audit(Router& router) { router.get("/v1/audit", list_audit); }

}  // namespace fluvial::coordinator::admin

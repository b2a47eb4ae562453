// Committed rounds.
#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <string>
#include <vector>

#include "coordinator/service/admin/resources.h"
#include "coordinator/service/json.h"

namespace fluvial::coordinator::admin {
namespace {

constexpr std::uint64_t kRoundsMax = 10'000;

net::Awaitable<Reply> list(Context* admin, Call call) {
  const Result<RunId> run = co_await admin->run_or_latest(call.text("run"));
  if (!run.ok()) co_return run.error();
  const Result<std::uint64_t> from = call.number("from", 1);
  const Result<std::uint64_t> limit = call.number("limit", 1000);
  if (!from.ok()) co_return from.error();
  if (!limit.ok()) co_return limit.error();
  std::vector<store::CommitRow> rows;
  const Result<RoundId> pruned = co_await admin->runtime.pool.run([&]() -> Result<RoundId> {
    FLUVIAL_ASSIGN(rows, admin->journal.commits(*run, RoundId(*from), std::min(*limit, kRoundsMax)));
    return admin->journal.pruned(*run);
  });
  if (!pruned.ok()) co_return pruned.error();
  std::string text = "{\"pruned\":" + std::to_string(pruned->value()) + ",\"rounds\":[";
  for (const store::CommitRow& row : rows) {
    if (text.back() == '}') text += ',';
    text += round_json(row, [admin](NodeId node) { return admin->name_of(node); });
  }
  co_return text + "]}";
}

}  // namespace

void add_rounds(Router& router) { router.get("/v1/rounds", list); }

}  // namespace fluvial::coordinator::admin

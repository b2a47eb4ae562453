#include "core/net/timekeeper.h"

namespace fluvial::net {
namespace {

class TimeService final : public asio::execution_context::service {
 public:
  static asio::execution_context::id id;
  explicit TimeService(asio::execution_context& context) : service(context) {}
  void shutdown() override {}

  Timekeeper* keeper = nullptr;
};
asio::execution_context::id TimeService::id;

}  // namespace

void keep_time(asio::execution_context& context, Timekeeper& keeper) {
  asio::use_service<TimeService>(context).keeper = &keeper;
}

Timekeeper* timekeeper_of(const Executor& executor) {
  if (!executor) return nullptr;
  asio::execution_context& context = asio::query(executor, asio::execution::context);
  return asio::has_service<TimeService>(context) ? asio::use_service<TimeService>(context).keeper : nullptr;
}

}  // namespace fluvial::net

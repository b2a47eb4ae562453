// A person's commands to the run, and what it is recorded and then told to be.
#include <boost/asio/awaitable.hpp>
#include <utility>

#include "coordinator/service/run_service.h"

namespace fluvial::coordinator {
namespace {

Error not_active(RunId run) {
  return {Code::kFailedPrecondition,
          "run " + std::to_string(run.value()) + " is not the active one; see: fluvial run list"};
}

}  // namespace

net::Awaitable<Status> RunService::pause(RunId run, std::string reason) {
  if (active_run() != run) co_return not_active(run);
  co_return co_await commands_.command([&] { carry_out(active_->machine.pause(std::move(reason), now())); });
}

net::Awaitable<Status> RunService::resume(RunId run) {
  if (active_run() != run) co_return not_active(run);
  steps_.health().models_work();
  co_return co_await commands_.command([&] { carry_out(active_->machine.resume(now())); });
}

net::Awaitable<Status> RunService::stop_run(RunId run, std::string reason) {
  if (active_run() != run) co_return not_active(run);
  co_return co_await commands_.command([&] { carry_out(active_->machine.stop(std::move(reason), now())); });
}

void RunService::carry_out(const TellStatus& effect) {
  const RunId run = active_->machine.run();
  v1::Envelope message;
  message.mutable_run_state()->set_run(run.value());
  message.mutable_run_state()->set_state(std::string(run_status_name(effect.status)));
  message.mutable_run_state()->set_reason(effect.reason);
  if (const wire::Order order = steps_.order_of(effect.status)) *message.mutable_run_state()->mutable_order() = *order;
  side_.tell_all(message);
  if (is_over(effect.status)) side_.end();
  if (effect.status != RunStatus::kRunning) steps_.rest();
  observer_.status_told(run, effect.status, effect.reason);
}

}  // namespace fluvial::coordinator

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
  told_ = steps_.state();
  side_.tell_all(told_);
  if (is_over(effect.status)) side_.end();
  if (effect.status != RunStatus::kRunning) steps_.rest();
  observer_.status_told(active_->machine.run(), effect.status, effect.reason);
}

void RunService::child_joined(NodeId child) {
  if (active_run()) hub_.send(child, told_);
}

}  // namespace fluvial::coordinator

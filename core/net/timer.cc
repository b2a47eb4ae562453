#include "core/net/timer.h"

#include <algorithm>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <optional>
#include <utility>

#include "core/net/timekeeper.h"

namespace fluvial::net {

struct Timer::State {
  explicit State(const Executor& on) : executor(on), keeper(timekeeper_of(on)) {
    if (keeper == nullptr) machine.emplace(on);
  }

  void cancel() {
    ++generation;
    if (machine) machine->cancel();
    if (keeper != nullptr) keeper->cancel(std::exchange(ticket, 0));
  }

  Executor executor;
  Timekeeper* keeper;
  std::optional<asio::steady_timer> machine;
  Timekeeper::Ticket ticket = 0;
  std::uint64_t generation = 0;  // a callback of an earlier one may be queued already
};

Timer::Timer(const Executor& executor) : state_(std::make_shared<State>(executor)) {}
Timer::~Timer() { state_->cancel(); }

void Timer::cancel() { state_->cancel(); }

void Timer::after(Duration delay, std::function<void()> fired) {
  state_->cancel();
  auto called = asio::bind_executor(state_->executor, [state = std::weak_ptr(state_), generation = state_->generation,
                                                       fired = std::move(fired)](boost::system::error_code error) {
    const std::shared_ptr<State> here = state.lock();
    if (!error && here && here->generation == generation) fired();
  });
  const Duration wait = std::max(Duration(0), delay);
  if (state_->keeper != nullptr) {
    const auto keep = [state = state_.get()](Timekeeper::Ticket ticket) { state->ticket = ticket; };
    detail::async_wait(*state_->keeper, wait, keep, std::move(called));
  } else {
    state_->machine->expires_after(wait);
    state_->machine->async_wait(std::move(called));
  }
}

}  // namespace fluvial::net

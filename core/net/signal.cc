#include "core/net/signal.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "core/net/timekeeper.h"

namespace fluvial::net {
namespace {

constexpr std::size_t kTicketsKept = 16;  // from here on those that are over are looked for

}  // namespace

struct AsyncSignal::Timer {
  explicit Timer(const Executor& executor) : keeper(timekeeper_of(executor)) {
    if (keeper == nullptr) machine.emplace(executor, asio::steady_timer::time_point::max());
  }

  void keep(Timekeeper::Ticket ticket) {
    if (tickets.size() >= kTicketsKept) {
      std::erase_if(tickets, [this](Timekeeper::Ticket one) { return !keeper->is_waiting(one); });
    }
    tickets.push_back(ticket);
  }

  Timekeeper* keeper;
  std::optional<asio::steady_timer> machine;  // never expires: cancelling it wakes the waiters
  std::vector<Timekeeper::Ticket> tickets;    // of those who wait; some may be over
};

AsyncSignal::AsyncSignal(const Executor& executor) : timer_(std::make_unique<Timer>(executor)) {}
AsyncSignal::~AsyncSignal() = default;
AsyncSignal::AsyncSignal(AsyncSignal&&) noexcept = default;

void AsyncSignal::notify_all() {
  if (timer_->machine) {
    timer_->machine->cancel();
    return;
  }
  for (const Timekeeper::Ticket ticket : std::exchange(timer_->tickets, {})) timer_->keeper->cancel(ticket);
}

Awaitable<void> AsyncSignal::wait() {
  if (timer_->machine) {
    co_await timer_->machine->async_wait(asio::as_tuple(asio::use_awaitable));
    co_return;
  }
  Timer& timer = *timer_;
  const auto keep = [&timer](Timekeeper::Ticket ticket) { timer.keep(ticket); };
  co_await detail::async_wait(*timer.keeper, {}, keep, asio::as_tuple(asio::use_awaitable));
}

}  // namespace fluvial::net

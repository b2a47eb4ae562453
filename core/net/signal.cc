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
  co_await asio::async_initiate<const asio::as_tuple_t<asio::use_awaitable_t<>>, void(boost::system::error_code)>(
      [&timer](auto handler) {
        auto slot = asio::get_associated_cancellation_slot(handler);
        using Waiting = detail::HandlerWaiter<decltype(handler)>;
        const Timekeeper::Ticket ticket =
            timer.keeper->wait({}, std::make_unique<Waiting>(std::move(handler), timer.keeper->executor()));
        timer.keep(ticket);
        Timekeeper* keeper = timer.keeper;
        if (slot.is_connected()) slot.assign([keeper, ticket](asio::cancellation_type) { keeper->cancel(ticket); });
      },
      asio::as_tuple(asio::use_awaitable));
}

}  // namespace fluvial::net

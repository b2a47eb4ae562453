#include "core/net/signal.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace fluvial::net {

struct AsyncSignal::Timer {
  explicit Timer(const Executor& executor) : timer(executor, asio::steady_timer::time_point::max()) {}
  asio::steady_timer timer;  // never expires: cancelling it wakes the waiters
};

AsyncSignal::AsyncSignal(const Executor& executor) : timer_(std::make_unique<Timer>(executor)) {}
AsyncSignal::~AsyncSignal() = default;
AsyncSignal::AsyncSignal(AsyncSignal&&) noexcept = default;

void AsyncSignal::notify_all() { timer_->timer.cancel(); }

Awaitable<void> AsyncSignal::wait() { co_await timer_->timer.async_wait(asio::as_tuple(asio::use_awaitable)); }

}  // namespace fluvial::net

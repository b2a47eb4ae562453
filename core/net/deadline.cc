#include "core/net/deadline.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/experimental/parallel_group.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>

#include "core/net/deadline_timer.h"
#include "core/net/timekeeper.h"

namespace fluvial::net {

Awaitable<void> sleep_for(Duration duration) {
  const Executor executor = co_await asio::this_coro::executor;
  if (Timekeeper* keeper = timekeeper_of(executor)) {
    co_await detail::async_wait(*keeper, duration, asio::use_awaitable);
    co_return;
  }
  asio::steady_timer timer(executor, duration);
  co_await timer.async_wait(asio::use_awaitable);
}

namespace detail {

namespace {

template <typename Wait>
Awaitable<Status> race_with(const Executor& executor, Awaitable<void> operation, Wait wait) {
  auto group =
      asio::experimental::make_parallel_group(asio::co_spawn(executor, std::move(operation), asio::deferred), wait);
  auto [order, failure, timer_error] =
      co_await group.async_wait(asio::experimental::wait_for_one(), asio::use_awaitable);
  const bool timed_out = order[0] == 1 && !timer_error;
  if (timed_out) co_return Error{Code::kDeadlineExceeded, "not done in time"};
  if (failure) std::rethrow_exception(failure);
  co_return Status{};
}

}  // namespace

// Not `operation || timer`: that waits for the first success, so an operation that fails at once would be held until
// the timer fires.
Awaitable<Status> race(Awaitable<void> operation, Duration limit) {
  const Executor executor = co_await asio::this_coro::executor;
  if (Timekeeper* keeper = timekeeper_of(executor)) {
    co_return co_await race_with(executor, std::move(operation), async_wait(*keeper, limit, asio::deferred));
  }
  asio::steady_timer timer(executor, limit);
  co_return co_await race_with(executor, std::move(operation), timer.async_wait(asio::deferred));
}

Awaitable<Status> race(Awaitable<void> operation, asio::steady_timer* timer) {
  const Executor executor = co_await asio::this_coro::executor;
  co_return co_await race_with(executor, std::move(operation), timer->async_wait(asio::deferred));
}

}  // namespace detail
}  // namespace fluvial::net

// A deadline that can be brought forward.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <optional>
#include <utility>

#include "core/net/deadline.h"

namespace fluvial::net {
namespace detail {

Awaitable<Status> race(Awaitable<void> operation, asio::steady_timer* timer);

}  // namespace detail

// As with_deadline, until the timer ends. Cancelling the timer cancels the operation: what comes of that is what comes
// of the operation, operation_aborted mostly. On the timer's executor.
template <typename T>
Awaitable<Result<T>> before(asio::steady_timer* timer, Awaitable<Result<T>> operation) {
  std::optional<Result<T>> out;
  const Status in_time = co_await detail::race(detail::store(std::move(operation), &out), timer);
  if (!in_time.ok() && (!out || !out->ok())) co_return in_time.error();
  co_return std::move(*out);
}

}  // namespace fluvial::net

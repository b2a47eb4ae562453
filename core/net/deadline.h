// Deadlines on awaits.
#pragma once

#include <optional>
#include <type_traits>
#include <utility>

#include "core/base/clock.h"
#include "core/base/result.h"
#include "core/net/awaitable.h"

namespace fluvial::net {

Awaitable<void> sleep_for(Duration duration);  // a cancelled coroutine unwinds with operation_aborted

namespace detail {

// Runs `operation` on the caller's executor. kDeadlineExceeded when the limit came first and the operation was told to
// stop, whatever came of that; otherwise an exception of the operation passes through.
Awaitable<Status> race(Awaitable<void> operation, Duration limit);

template <typename T>
Awaitable<void> store(Awaitable<T> operation, std::optional<T>* out) {
  out->emplace(co_await std::move(operation));
}

template <typename T>
struct Flattened {
  using type = Result<T>;
  static bool failed(const T&) { return false; }
};
template <>
struct Flattened<void> {
  using type = Status;
};
template <typename T>
struct Flattened<Result<T>> {
  using type = Result<T>;
  static bool failed(const Result<T>& result) { return !result.ok(); }
};

}  // namespace detail

// The operation's result, or kDeadlineExceeded: then the operation was cancelled and has ended. A Result<T> stays a
// Result<T>; any other T becomes Result<T>. The operation must end when cancelled (Asio's own and this room's do).
template <typename T>
Awaitable<typename detail::Flattened<T>::type> with_deadline(Awaitable<T> operation, Duration limit) {
  if constexpr (std::is_void_v<T>) {
    co_return co_await detail::race(std::move(operation), limit);
  } else {
    std::optional<T> out;
    const Status in_time = co_await detail::race(detail::store(std::move(operation), &out), limit);
    if (!in_time.ok() && (!out || detail::Flattened<T>::failed(*out))) co_return in_time.error();
    co_return std::move(*out);
  }
}

}  // namespace fluvial::net

// Running a coroutine on another strand: the caller waits, and resumes where it was.
#pragma once

#include <optional>
#include <utility>

#include "core/net/awaitable.h"

namespace fluvial::net {

// Runs `task` on `strand` to its end; an exception of the task's passes through. Cancelling the caller cancels the
// task, which still has to end. Not `co_await asio::co_spawn(strand, task, use_awaitable)`: in Boost 1.81 a
// cancellation that crosses the task's end reaches freed memory.
Awaitable<void> run_on(Executor strand, Awaitable<void> task);

namespace detail {
template <typename T>
Awaitable<void> keep(Awaitable<T> task, std::optional<T>* out) {
  out->emplace(co_await std::move(task));
}
}  // namespace detail

// The same, and returns what it returned.
template <typename T>
Awaitable<T> run_on(Executor strand, Awaitable<T> task) {
  std::optional<T> out;
  co_await run_on(std::move(strand), detail::keep(std::move(task), &out));
  co_return std::move(*out);
}

}  // namespace fluvial::net

// Asking another strand: the caller waits, and resumes where it was.
#pragma once

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <optional>
#include <type_traits>
#include <utility>

#include "core/net/deadline.h"

namespace fluvial::tree {

namespace detail {
template <typename F, typename R>
net::Awaitable<void> call(F f, std::optional<R>* out) {
  out->emplace(f());
  co_return;
}
}  // namespace detail

// Runs a coroutine on `target` to its end, and returns what it returned.
template <typename T>
net::Awaitable<T> run_on(net::Executor target, net::Awaitable<T> task) {
  std::optional<T> out;
  co_await net::asio::co_spawn(target, net::detail::store(std::move(task), &out), net::asio::use_awaitable);
  co_return std::move(*out);
}

// Runs f() on `target` and returns what it returned. What `f` refers to must live in the caller's frame.
template <typename F>
net::Awaitable<std::invoke_result_t<F>> ask(net::Executor target, F f) {
  std::optional<std::invoke_result_t<F>> out;
  co_await net::asio::co_spawn(target, detail::call(std::move(f), &out), net::asio::use_awaitable);
  co_return std::move(*out);
}

}  // namespace fluvial::tree

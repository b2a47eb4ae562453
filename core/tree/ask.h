// Asking another strand: the caller waits, and resumes where it was.
#pragma once

#include <optional>
#include <type_traits>
#include <utility>

#include "core/net/run_on.h"

namespace fluvial::tree {

namespace detail {
template <typename F, typename R>
net::Awaitable<void> call(F f, std::optional<R>* out) {
  out->emplace(f());
  co_return;
}
}  // namespace detail

using net::run_on;

// Runs f() on `strand` and returns what it returned, also when the caller is cancelled meanwhile. What `f` refers to
// must live in the caller's frame.
template <typename F>
net::Awaitable<std::invoke_result_t<F>> ask(net::Executor strand, F f) {
  std::optional<std::invoke_result_t<F>> out;
  co_await net::run_on(std::move(strand), detail::call(std::move(f), &out));
  co_return std::move(*out);
}

}  // namespace fluvial::tree

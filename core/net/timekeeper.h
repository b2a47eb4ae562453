// Who keeps the time of an execution context. On a context that has a Timekeeper (the simulator's have one) every wait
// of this room is on that one's time; on any other it is on the machine's clock.
#pragma once

#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/system/error_code.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "core/base/clock.h"
#include "core/net/awaitable.h"

namespace fluvial::net {

// What goes on when a wait is over. Destroyed without done() when its context ends.
class Waiter {
 public:
  virtual ~Waiter() = default;
  virtual void done(boost::system::error_code error) = 0;  // once; posts to the waiter's executor
};

// On its context's one thread. It owns the waiters, and destroys them before the context's other services end.
class Timekeeper {
 public:
  using Ticket = std::uint64_t;

  virtual ~Timekeeper() = default;
  // Done after `limit` without an error (none: never), or with operation_aborted as soon as the ticket is cancelled.
  virtual Ticket wait(std::optional<Duration> limit, std::unique_ptr<Waiter> waiter) = 0;
  virtual void cancel(Ticket ticket) = 0;  // does nothing when that wait is over
  virtual bool is_waiting(Ticket ticket) const = 0;
  virtual Executor executor() = 0;  // for a waiter that names none
};

void keep_time(asio::execution_context& context, Timekeeper& keeper);  // once, before anything waits
Timekeeper* timekeeper_of(const Executor& executor);                   // null: the machine's clock

namespace detail {

template <typename Handler>
class HandlerWaiter final : public Waiter {
 public:
  HandlerWaiter(Handler handler, Executor fallback) : handler_(std::move(handler)), fallback_(std::move(fallback)) {}
  void done(boost::system::error_code error) override {
    const auto executor = asio::get_associated_executor(handler_, fallback_);
    asio::post(executor, [handler = std::move(handler_), error]() mutable { std::move(handler)(error); });
  }

 private:
  Handler handler_;
  Executor fallback_;
};

// Completes with an error_code. `keep` is given the wait's ticket when it begins.
template <typename Keep, typename Token>
auto async_wait(Timekeeper& keeper, std::optional<Duration> limit, Keep keep, Token&& token) {
  auto initiate = [&keeper, limit, keep](auto handler) {
    auto slot = asio::get_associated_cancellation_slot(handler);
    using Waiting = HandlerWaiter<decltype(handler)>;
    const Timekeeper::Ticket ticket =
        keeper.wait(limit, std::make_unique<Waiting>(std::move(handler), keeper.executor()));
    keep(ticket);
    if (slot.is_connected()) slot.assign([&keeper, ticket](asio::cancellation_type) { keeper.cancel(ticket); });
  };
  return asio::async_initiate<Token, void(boost::system::error_code)>(std::move(initiate), token);
}

template <typename Token>
auto async_wait(Timekeeper& keeper, std::optional<Duration> limit, Token&& token) {
  return async_wait(keeper, limit, [](Timekeeper::Ticket) {}, std::forward<Token>(token));
}

}  // namespace detail
}  // namespace fluvial::net

#include "core/net/run_on.h"

#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/prefer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <memory>

namespace fluvial::net {
namespace {

// Of one task, on its strand. Whoever still wants to cancel it keeps it.
struct Cancelling {
  asio::cancellation_signal signal;
  bool over = false;
};

struct Start {
  Executor strand;
  Awaitable<void> task;

  template <typename Handler>
  void operator()(Handler handler) {
    auto cancelling = std::make_shared<Cancelling>();
    auto slot = asio::get_associated_cancellation_slot(handler);
    if (slot.is_connected()) {
      slot.assign([at = strand, cancelling](asio::cancellation_type type) {
        asio::post(at, [cancelling, type] {
          if (!cancelling->over) cancelling->signal.emit(type);
        });
      });
    }
    Executor caller = asio::prefer(asio::get_associated_executor(handler), asio::execution::outstanding_work.tracked);
    auto on_end = [cancelling, caller = std::move(caller),
                   handler = std::move(handler)](std::exception_ptr failure) mutable {
      cancelling->over = true;
      asio::dispatch(caller, [handler = std::move(handler), failure]() mutable { std::move(handler)(failure); });
    };
    // Begun from its own strand, so that only that one ever touches the signal.
    asio::dispatch(strand, [at = strand, cancelling, task = std::move(task), on_end = std::move(on_end)]() mutable {
      asio::co_spawn(at, std::move(task), asio::bind_cancellation_slot(cancelling->signal.slot(), std::move(on_end)));
    });
  }
};

}  // namespace

Awaitable<void> run_on(Executor strand, Awaitable<void> task) {
  co_await asio::async_initiate<const asio::use_awaitable_t<>, void(std::exception_ptr)>(
      Start{std::move(strand), std::move(task)}, asio::use_awaitable);
}

}  // namespace fluvial::net

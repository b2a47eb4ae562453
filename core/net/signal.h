// A condition for coroutines that share one strand: wait in a loop around a predicate, notify after changing it.
//
//   while (queue.empty() && !closed) co_await changed.wait();
#pragma once

#include <memory>

#include "core/net/awaitable.h"

namespace fluvial::net {

// Not thread safe: notify and wait on the executor's strand. Destroying it wakes nobody; outlive the waiters.
class AsyncSignal {
 public:
  explicit AsyncSignal(const Executor& executor);
  ~AsyncSignal();
  AsyncSignal(AsyncSignal&&) noexcept;
  AsyncSignal& operator=(AsyncSignal&&) = delete;

  void notify_all();
  // Returns after the next notify_all(). A cancelled coroutine unwinds with operation_aborted.
  Awaitable<void> wait();

 private:
  struct Timer;
  std::unique_ptr<Timer> timer_;
};

}  // namespace fluvial::net

// A bounded pool of threads for what would hold up a strand: kernels, fsync, hashing.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "core/base/result.h"
#include "core/net/awaitable.h"

namespace fluvial::net {

// Thread safe. The destructor finishes what is queued and joins the threads; destroy it before the executors of those
// who wait on it.
class WorkerPool {
 public:
  WorkerPool(std::size_t threads, std::size_t queue_max);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Runs `work` (returns a Result or a Status) on the pool and resumes on the caller's executor with what it returned.
  // kResourceExhausted when the queue is full; kInternal when `work` threw. Cancellation waits for `work` to end.
  template <typename F>
  Awaitable<std::invoke_result_t<F>> run(F work) {
    using R = std::invoke_result_t<F>;
    auto out = std::make_shared<std::optional<R>>();
    const Status ran = co_await run_erased([out, work = std::move(work)]() mutable { out->emplace(work()); });
    if (!ran.ok()) co_return ran.error();
    co_return std::move(**out);
  }

  // The same without waiting; false when the queue is full.
  bool enqueue(std::function<void()> work);

  std::size_t threads() const;

 private:
  struct State;
  Awaitable<Status> run_erased(std::function<void()> work);
  std::unique_ptr<State> state_;
};

}  // namespace fluvial::net

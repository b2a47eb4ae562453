// A bounded pool for what would hold up a strand: kernels, fsync, hashing.
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

// What takes its time by the size of the model. The simulator charges for it; threads treat all work alike.
enum class Work { kOther, kMerge, kPack, kFinalise };

class WorkerPool {
 public:
  virtual ~WorkerPool() = default;

  // Thread safe. Runs `work` (returns a Result or a Status) on the pool and resumes on the caller's executor with what
  // it returned. kResourceExhausted when the queue is full; kInternal when `work` threw. Cancellation waits for `work`
  // to end.
  template <typename F>
  Awaitable<std::invoke_result_t<F>> run(F work, Work kind = Work::kOther) {
    using R = std::invoke_result_t<F>;
    auto out = std::make_shared<std::optional<R>>();
    const Status ran = co_await run_erased([out, work = std::move(work)]() mutable { out->emplace(work()); }, kind);
    if (!ran.ok()) co_return ran.error();
    co_return std::move(**out);
  }

  // The same without waiting; false when the queue is full.
  virtual bool enqueue(std::function<void()> work) = 0;

  virtual std::size_t threads() const = 0;

 private:
  virtual Awaitable<Status> run_erased(std::function<void()> work, Work kind) = 0;
};

// Of threads. The destructor finishes what is queued and joins the threads; destroy it before the executors of those
// who wait on it.
class ThreadPool final : public WorkerPool {
 public:
  ThreadPool(std::size_t threads, std::size_t queue_max);
  ~ThreadPool() override;
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  bool enqueue(std::function<void()> work) override;
  std::size_t threads() const override;
  std::size_t tasks() const;  // queued or running; thread safe

 private:
  struct State;
  Awaitable<Status> run_erased(std::function<void()> work, Work kind) override;
  std::unique_ptr<State> state_;
};

}  // namespace fluvial::net

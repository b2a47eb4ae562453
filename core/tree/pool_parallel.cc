#include "core/tree/pool_parallel.h"

#include <algorithm>
#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

namespace fluvial::tree {
namespace {

// Lives until the last helper has looked at it; `f` only while for_each() waits.
struct Shared {
  const std::function<Status(std::size_t)>* f = nullptr;
  std::size_t count = 0;
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t helping = 0;
  bool closed = false;  // a helper that comes now is too late
  Status first;

  Status call(std::size_t i) const {
    try {
      return (*f)(i);
    } catch (const std::exception& error) {
      return Error{Code::kInternal, std::string("work on the pool failed: ") + error.what()};
    }
  }

  void work() {
    for (std::size_t i = next++; i < count; i = next++) {
      if (Status status = call(i); !status.ok()) {
        next = count;
        const std::lock_guard lock(mutex);
        if (first.ok()) first = std::move(status);
      }
    }
  }

  void help() {
    {
      const std::lock_guard lock(mutex);
      if (closed) return;
      ++helping;
    }
    work();
    const std::lock_guard lock(mutex);
    --helping;
    changed.notify_all();
  }
};

}  // namespace

Status PoolParallel::for_each(std::size_t count, const std::function<Status(std::size_t)>& f) {
  auto shared = std::make_shared<Shared>();
  shared->f = &f;
  shared->count = count;
  for (std::size_t i = 1; i < std::min(threads_, count); ++i) {
    if (!pool_->enqueue([shared] { shared->help(); })) break;
  }
  shared->work();
  std::unique_lock lock(shared->mutex);
  shared->closed = true;
  shared->changed.wait(lock, [&] { return shared->helping == 0; });
  return shared->first;
}

// NOLINTNEXTLINE(cppcoreguidelines-avoid-reference-coroutine-parameters): it outlives every task
net::Awaitable<Status> for_each_chunk(Runtime& runtime, std::size_t count, std::function<Status(std::size_t)> f) {
  if (count == 0) co_return Status{};
  co_return co_await runtime.pool.run([&] { return PoolParallel(runtime).for_each(count, f); });
}

}  // namespace fluvial::tree

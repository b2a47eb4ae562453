#include "core/net/worker_pool.h"

#include <atomic>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/prefer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <string>
#include <thread>
#include <utility>

namespace fluvial::net {

struct ThreadPool::State {
  State(std::size_t threads_, std::size_t queue_max_) : pool(threads_), threads(threads_), queue_max(queue_max_) {}

  bool enter() {
    if (waiting.fetch_add(1) < queue_max) return true;
    waiting.fetch_sub(1);
    return false;
  }

  // What is handed over may be done, and whoever waits for it may destroy the pool, before this thread has left post().
  template <typename Job>
  void post(Job job) {
    posting.fetch_add(1);
    asio::post(pool, std::move(job));
    posting.fetch_sub(1);
  }

  asio::thread_pool pool;
  const std::size_t threads;
  const std::size_t queue_max;
  std::atomic<std::size_t> waiting = 0;  // queued or running
  std::atomic<std::size_t> posting = 0;  // threads
};

ThreadPool::ThreadPool(std::size_t threads, std::size_t queue_max)
    : state_(std::make_unique<State>(threads, queue_max)) {}

ThreadPool::~ThreadPool() {
  state_->pool.join();
  while (state_->posting.load() > 0) std::this_thread::yield();
}

std::size_t ThreadPool::threads() const { return state_->threads; }

std::size_t ThreadPool::tasks() const { return state_->waiting.load(); }

bool ThreadPool::enqueue(std::function<void()> work) {
  if (!state_->enter()) return false;
  state_->post([state = state_.get(), work = std::move(work)] {
    work();
    state->waiting.fetch_sub(1);
  });
  return true;
}

Awaitable<Status> ThreadPool::run_erased(std::function<void()> work, Work) {
  if (!state_->enter()) co_return Error{Code::kResourceExhausted, "the worker pool's queue is full"};
  std::string failure;
  auto initiate = [state = state_.get(), work = std::move(work), &failure](auto handler) mutable {
    auto executor = asio::prefer(asio::get_associated_executor(handler), asio::execution::outstanding_work.tracked);
    state->post([state, work = std::move(work), &failure, executor = std::move(executor),
                 handler = std::move(handler)]() mutable {
      try {
        work();
      } catch (const std::exception& error) {
        failure = error.what();
        if (failure.empty()) failure = "an exception without a text";
      }
      work = nullptr;
      state->waiting.fetch_sub(1);
      asio::post(executor, std::move(handler));
    });
  };
  co_await asio::async_initiate<const asio::use_awaitable_t<>, void()>(std::move(initiate), asio::use_awaitable);
  if (!failure.empty()) co_return Error{Code::kInternal, "work on the pool failed: " + failure};
  co_return Status{};
}

}  // namespace fluvial::net

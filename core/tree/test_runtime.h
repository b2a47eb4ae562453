// A node's runtime for tests: threads, a pool, files in memory, a log that is kept.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/strand.hpp>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "core/base/testing.h"
#include "core/net/test_support.h"
#include "core/store/memory_file_system.h"
#include "core/tree/ask.h"
#include "core/tree/runtime.h"

namespace fluvial::tree {

// The machine's, and further on by what a test leaps. Thread safe.
class LeapingClock final : public Clock {
 public:
  TimePoint now() const override { return SystemClock().now() + Duration(leapt_.load()); }
  WallTime wall_now() const override { return SystemClock().wall_now(); }
  void leap(Duration time) { leapt_ += time.count(); }

 private:
  std::atomic<Duration::rep> leapt_{0};
};

class TestRuntime {
 public:
  explicit TestRuntime(Role role, std::size_t pool_threads = 2)
      : metrics_(role, "test"),
        pool_(pool_threads, 1 << 16),
        runtime_{threads_.executor(),
                 net::asio::make_strand(threads_.executor()),
                 pool_,
                 pool_threads,
                 clock_,
                 files_,
                 telemetry::Logger(log_),
                 metrics_,
                 observing_hooks(metrics_, telemetry::null_logger()),
                 {},
                 {.first = std::chrono::milliseconds(1), .cap = std::chrono::milliseconds(10)}} {}

  Runtime& get() { return runtime_; }
  net::Threads& threads() { return threads_; }
  store::MemoryFileSystem& files() { return files_; }
  LeapingClock& clock() { return clock_; }
  telemetry::CaptureSink& log() { return *log_; }
  telemetry::Metrics& metrics() { return metrics_; }

  // On the strand, to its end.
  template <typename T>
  T run(net::Awaitable<T> task) {
    return threads_.run(std::move(task), runtime_.strand);
  }
  template <typename F>
  auto on_strand(F f) {
    if constexpr (std::is_void_v<std::invoke_result_t<F>>) {
      const bool done = run(ask(runtime_.strand, [&] { return f(), true; }));
      EXPECT_TRUE(done);
    } else {
      return run(ask(runtime_.strand, f));
    }
  }

 private:
  LeapingClock clock_;
  store::MemoryFileSystem files_;
  std::shared_ptr<telemetry::CaptureSink> log_ = std::make_shared<telemetry::CaptureSink>();
  telemetry::Metrics metrics_;
  net::ThreadPool pool_;
  net::Threads threads_;
  Runtime runtime_;
};

// Values that a strand hands to the test's thread.
template <typename T>
class Mailbox {
 public:
  void put(T value) {
    values_.change([&](std::deque<T>& values) { values.push_back(std::move(value)); });
  }
  T take() {
    std::optional<T> value;
    values_.wait([](const std::deque<T>& values) { return !values.empty(); },
                 [&](std::deque<T>& values) {
                   value.emplace(std::move(values.front()));
                   values.pop_front();
                 });
    return std::move(*value);
  }
  bool empty() {
    bool is_empty = false;
    values_.change([&](const std::deque<T>& values) { is_empty = values.empty(); });
    return is_empty;
  }

 private:
  Watched<std::deque<T>> values_;
};

}  // namespace fluvial::tree

// What the room's tests share: a runtime with threads, a folder in memory, small models.
#pragma once

#include <gtest/gtest.h>

#include <boost/asio/strand.hpp>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/testing.h"
#include "core/digest/sha256.h"
#include "core/net/test_support.h"
#include "core/store/memory_file_system.h"
#include "core/store/site_store.h"
#include "core/tree/ask.h"
#include "core/tree/runtime.h"
#include "edge/service/trained.h"

namespace fluvial::edge {

class TestRuntime {
 public:
  explicit TestRuntime(std::size_t pool_threads = 2)
      : pool_(pool_threads, 1 << 16),
        runtime_{threads_.executor(),
                 net::asio::make_strand(threads_.executor()),
                 pool_,
                 pool_threads,
                 clock_,
                 files_,
                 telemetry::Logger(log_),
                 metrics_,
                 tree::observing_hooks(metrics_, telemetry::null_logger()),
                 {},
                 {.first = std::chrono::milliseconds(1), .cap = std::chrono::milliseconds(10)}} {}

  tree::Runtime& get() { return runtime_; }
  net::Threads& threads() { return threads_; }
  store::MemoryFileSystem& files() { return files_; }
  telemetry::CaptureSink& log() { return *log_; }
  template <typename T>
  T run(net::Awaitable<T> task) {
    return threads_.run(std::move(task), runtime_.strand);
  }
  template <typename F>
  auto on_strand(F f) {
    if constexpr (std::is_void_v<std::invoke_result_t<F>>) {
      const bool done = run(tree::ask(runtime_.strand, [&] { return f(), true; }));
      EXPECT_TRUE(done);
    } else {
      return run(tree::ask(runtime_.strand, f));
    }
  }
  std::unique_ptr<store::SiteStore> open_store() {
    Result<std::unique_ptr<store::SiteStore>> opened = store::SiteStore::open(files_, "/site");
    EXPECT_TRUE(opened.ok()) << opened.error().to_string();
    return std::move(*opened);
  }

 private:
  SystemClock clock_;
  store::MemoryFileSystem files_;
  std::shared_ptr<telemetry::CaptureSink> log_ = std::make_shared<telemetry::CaptureSink>();
  telemetry::Metrics metrics_{Role::kSite, "test"};
  net::ThreadPool pool_;
  net::Threads threads_;
  tree::Runtime runtime_;
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

inline std::shared_ptr<const local::SharedModel> shared(ByteSpan bytes) {
  return local::SharedModel::copy_of(bytes).value();
}
inline std::shared_ptr<const local::SharedModel> shared(const std::vector<float>& values) {
  return shared(std::as_bytes(std::span(values)));
}

inline HeldModel held_model(RunId run, std::uint64_t version, round::Schema schema, ByteSpan bytes) {
  return {{run, ModelVersion(version), sha256(bytes), bytes.size()}, std::move(schema), shared(bytes)};
}

// Deterministic, and different for each seed.
inline std::vector<float> draw(std::uint64_t seed, std::size_t count, double scale = 1) {
  Rng rng(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>((rng.uniform() - 0.5) * scale);
  return values;
}

}  // namespace fluvial::edge

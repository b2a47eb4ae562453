#include "core/net/pool_parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <latch>
#include <memory>
#include <stdexcept>
#include <vector>

namespace fluvial::net {
namespace {

// Runs `work` on a thread of the pool and waits for it.
template <typename F>
auto on_pool(WorkerPool& pool, F work) {
  std::promise<std::invoke_result_t<F>> result;
  EXPECT_TRUE(pool.enqueue([&] { result.set_value(work()); }));
  return result.get_future().get();
}

TEST(PoolParallel, EachPieceOnceOnAsManyThreadsAsThereAre) {
  ThreadPool pool(3, 100);
  PoolParallel parallel(pool);
  EXPECT_EQ(parallel.width(), 3u);
  std::vector<std::atomic<int>> calls(1000);
  std::latch all_three(3);  // the first three pieces wait for each other: they run side by side
  const Status done = on_pool(pool, [&] {
    return parallel.for_each(calls.size(), [&](std::size_t i) -> Status {
      if (i < 3) all_three.arrive_and_wait();
      ++calls[i];
      return {};
    });
  });
  EXPECT_TRUE(done.ok());
  for (const auto& called : calls) EXPECT_EQ(called, 1);
  EXPECT_TRUE(parallel.for_each(0, [](std::size_t) -> Status { return Error{Code::kInternal, "called"}; }).ok());
}

TEST(PoolParallel, EndsWhenTheQueueIsFullAndWhenItNests) {
  ThreadPool pool(2, 2);
  PoolParallel parallel(pool);
  std::atomic<int> calls = 0;
  const auto piece = [&](std::size_t) -> Status { return ++calls, Status{}; };
  const auto nest = [&] { return parallel.for_each(5, [&](std::size_t) { return parallel.for_each(7, piece); }); };
  std::promise<Status> other;
  std::promise<void> both;  // both threads of the pool have begun, and nothing can be queued
  ASSERT_TRUE(pool.enqueue([&] {
    both.get_future().wait();
    other.set_value(nest());
  }));
  const Status done = on_pool(pool, [&] {
    EXPECT_FALSE(pool.enqueue([] {}));
    both.set_value();
    return nest();
  });
  EXPECT_TRUE(done.ok());
  EXPECT_TRUE(other.get_future().get().ok());
  EXPECT_EQ(calls, 2 * 5 * 7);
}

TEST(PoolParallel, TheFirstErrorEndsIt) {
  ThreadPool pool(2, 100);
  PoolParallel parallel(pool);
  std::atomic<int> calls = 0;
  const Status failed = on_pool(pool, [&] {
    return parallel.for_each(100'000, [&](std::size_t i) -> Status {
      ++calls;
      if (i == 10) return Error{Code::kDataLoss, "the tenth"};
      return {};
    });
  });
  EXPECT_EQ(failed.error().message, "the tenth");
  EXPECT_LT(calls, 100'000);
  const Status threw = on_pool(pool, [&] {
    return parallel.for_each(2, [](std::size_t) -> Status { throw std::runtime_error("out of memory"); });
  });
  EXPECT_EQ(threw.error().code, Code::kInternal);
  EXPECT_NE(threw.error().message.find("out of memory"), std::string::npos);
}

// A helper that gets its turn when all is done finds nothing, and touches nothing of the caller's.
TEST(PoolParallel, AHelperMayComeTooLate) {
  ThreadPool pool(2, 100);
  PoolParallel parallel(pool);
  std::promise<void> gate;
  const std::shared_future<void> opened = gate.get_future().share();
  ASSERT_TRUE(pool.enqueue([opened] { opened.wait(); }));
  const Status done = on_pool(pool, [&] {
    const std::unique_ptr<int> local = std::make_unique<int>(0);
    return parallel.for_each(3, [&](std::size_t) -> Status { return ++*local, Status{}; });
  });
  EXPECT_TRUE(done.ok());
  gate.set_value();
}

}  // namespace
}  // namespace fluvial::net

#include <atomic>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <stdexcept>

#include "core/net/deadline.h"
#include "core/net/signal.h"
#include "core/net/task_group.h"
#include "core/net/test_support.h"
#include "core/net/worker_pool.h"

namespace fluvial::net {
namespace {

constexpr Duration kNeverReached = std::chrono::minutes(10);

Awaitable<Result<int>> give(int value) { co_return value; }
Awaitable<int> give_plain(int value) { co_return value; }
Awaitable<Result<int>> refuse() { co_return Error{Code::kNotFound, "no such thing"}; }
Awaitable<void> do_nothing() { co_return; }
Awaitable<void> fail() {
  throw std::runtime_error("broken");
  co_return;
}
Awaitable<Result<int>> never() {
  AsyncSignal signal(co_await asio::this_coro::executor);
  for (;;) co_await signal.wait();
}

TEST(WithDeadline, PassesOnWhatComesInTime) {
  Threads threads;
  EXPECT_EQ(*threads.run(with_deadline(give(3), kNeverReached)), 3);
  EXPECT_EQ(*threads.run(with_deadline(give_plain(4), kNeverReached)), 4);
  EXPECT_EQ(threads.run(with_deadline(refuse(), kNeverReached)).error().code, Code::kNotFound);
  EXPECT_TRUE(threads.run(with_deadline(do_nothing(), kNeverReached)).ok());
}

TEST(WithDeadline, CancelsWhatIsLate) {
  Threads threads;
  const auto late = threads.run(with_deadline(never(), std::chrono::milliseconds(1)));
  EXPECT_EQ(late.error().code, Code::kDeadlineExceeded);
  const Status slept = threads.run(with_deadline(sleep_for(kNeverReached), std::chrono::milliseconds(1)));
  EXPECT_EQ(slept.error().code, Code::kDeadlineExceeded);
}

TEST(WithDeadline, AnExceptionDoesNotWaitForTheTimer) {
  Threads threads;
  EXPECT_THROW((void)threads.run(with_deadline(fail(), kNeverReached)), std::runtime_error);
}

TEST(WithDeadline, Nests) {
  Threads threads;
  const auto inner_first =
      threads.run(with_deadline(with_deadline(never(), std::chrono::milliseconds(1)), kNeverReached));
  EXPECT_EQ(inner_first.error().code, Code::kDeadlineExceeded);
  const auto outer_first =
      threads.run(with_deadline(with_deadline(never(), kNeverReached), std::chrono::milliseconds(1)));
  EXPECT_EQ(outer_first.error().code, Code::kDeadlineExceeded);
}

struct Latch {
  explicit Latch(const Executor& executor) : signal(executor) {}
  AsyncSignal signal;
  bool open = false;
  int passed = 0;
};

Awaitable<void> pass(std::shared_ptr<Latch> gate) {
  while (!gate->open) co_await gate->signal.wait();
  ++gate->passed;
}

Awaitable<void> open_gate(std::shared_ptr<Latch> gate) {
  gate->open = true;
  gate->signal.notify_all();
  co_return;
}

TEST(AsyncSignal, WakesEveryWaiter) {
  Threads threads;
  const Executor strand = asio::make_strand(threads.executor());
  auto gate = std::make_shared<Latch>(strand);
  TaskGroup tasks(threads.executor());
  for (int i = 0; i < 10; ++i) tasks.spawn(strand, "waiter", pass(gate));
  threads.run(open_gate(gate), strand);
  threads.run(tasks.join());
  EXPECT_EQ(gate->passed, 10);
}

TEST(TaskGroup, ReportsFailuresAndJoins) {
  Threads threads;
  std::atomic<int> failures = 0;
  TaskGroup tasks(threads.executor(), [&](const std::string& task, const std::string& what) {
    EXPECT_EQ(task, "failing");
    EXPECT_EQ(what, "broken");
    ++failures;
  });
  for (int i = 0; i < 20; ++i) tasks.spawn(asio::make_strand(threads.executor()), "failing", fail());
  threads.run(tasks.join());
  EXPECT_EQ(failures, 20);
  EXPECT_EQ(tasks.size(), 0u);
}

TEST(TaskGroup, ATaskMayHaveSomebodyOfItsOwnWhoIsToldOfItsFailure) {
  Threads threads;
  TaskGroup tasks(threads.executor(), [](const std::string&, const std::string& what) { ADD_FAILURE() << what; });
  std::string told;
  tasks.spawn(asio::make_strand(threads.executor()), "failing", fail(),
              [&](const std::string& task, const std::string& what) { told = task + ": " + what; });
  threads.run(tasks.join());
  EXPECT_EQ(told, "failing: broken");
}

Awaitable<void> wait_for_ever() { (void)co_await never(); }

TEST(TaskGroup, CancelsWhatRuns) {
  Threads threads;
  TaskGroup tasks(threads.executor(), [](const std::string&, const std::string& what) { ADD_FAILURE() << what; });
  for (int i = 0; i < 20; ++i) tasks.spawn(asio::make_strand(threads.executor()), "endless", wait_for_ever());
  EXPECT_EQ(tasks.size(), 20u);
  tasks.cancel();
  threads.run(tasks.join());
  EXPECT_EQ(tasks.size(), 0u);
}

Awaitable<void> use_pool(WorkerPool* pool, int value, std::atomic<int>* sum) {
  const auto caller = std::this_thread::get_id();
  const auto doubled = co_await pool->run([value, caller]() -> Result<int> {
    EXPECT_NE(std::this_thread::get_id(), caller);
    return 2 * value;
  });
  *sum += *doubled;
}

TEST(WorkerPool, RunsAndResumesOnTheCallersExecutor) {
  Threads threads;
  ThreadPool pool(2, 1000);
  std::atomic<int> sum = 0;
  TaskGroup tasks(threads.executor());
  for (int i = 0; i < 100; ++i) tasks.spawn(asio::make_strand(threads.executor()), "use", use_pool(&pool, i, &sum));
  threads.run(tasks.join());
  EXPECT_EQ(sum, 9900);
}

Status no_disk() { throw std::runtime_error("no disk"); }

TEST(WorkerPool, AnExceptionBecomesAnError) {
  Threads threads;
  ThreadPool pool(1, 10);
  const auto broken = threads.run(pool.run(no_disk));
  EXPECT_EQ(broken.error().code, Code::kInternal);
  EXPECT_NE(broken.error().message.find("no disk"), std::string::npos);
}

TEST(WorkerPool, TheQueueIsBounded) {
  Threads threads;
  ThreadPool pool(1, 2);
  std::promise<void> release;
  ASSERT_TRUE(pool.enqueue([held = release.get_future().share()] { held.wait(); }));
  ASSERT_TRUE(pool.enqueue([] {}));
  EXPECT_FALSE(pool.enqueue([] {}));
  const Status refused = threads.run(pool.run([]() -> Status { return {}; }));
  EXPECT_EQ(refused.error().code, Code::kResourceExhausted);
  release.set_value();
}

}  // namespace
}  // namespace fluvial::net

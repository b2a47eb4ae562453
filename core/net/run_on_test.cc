#include "core/net/run_on.h"

#include <gtest/gtest.h>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/system/system_error.hpp>
#include <optional>
#include <stdexcept>

namespace fluvial::net {
namespace {

Awaitable<int> give_back(int value) { co_return value; }
Awaitable<int> fail_at_once() {
  throw std::runtime_error("broken");
  co_return 0;
}
Awaitable<int> sleep(bool* cancelled) {
  asio::steady_timer timer(co_await asio::this_coro::executor, std::chrono::hours(1));
  try {
    co_await timer.async_wait(asio::use_awaitable);
  } catch (const boost::system::system_error&) {
    *cancelled = true;
    throw;
  }
  co_return 0;
}

// The caller's strand and the other one, each moved on by hand: a turn is what the strand has to do just now.
class RunOn : public testing::Test {
 protected:
  void start(Awaitable<int> task) {
    asio::co_spawn(here_, call(std::move(task)),
                   asio::bind_cancellation_slot(cancel_->slot(), [this](std::exception_ptr failure) {
                     ended_ = true;
                     failure_ = failure;
                   }));
  }
  Awaitable<void> call(Awaitable<int> task) { got_ = co_await run_on(there_.get_executor(), std::move(task)); }
  static void turn(asio::io_context& context) {
    context.restart();
    context.poll();
  }
  void cancel() {  // at the caller's next turn
    asio::post(here_, [this] { cancel_->emit(asio::cancellation_type::terminal); });
  }

  asio::io_context here_;
  asio::io_context there_;
  std::optional<asio::cancellation_signal> cancel_{std::in_place};
  int got_ = 0;
  bool ended_ = false;
  std::exception_ptr failure_;
};

TEST_F(RunOn, ReturnsWhatTheTaskReturned) {
  start(give_back(3));
  turn(here_);
  EXPECT_FALSE(ended_) << "it runs on the other one";
  turn(there_);
  turn(here_);
  EXPECT_TRUE(ended_ && !failure_);
  EXPECT_EQ(got_, 3);
}

TEST_F(RunOn, AnExceptionPassesThrough) {
  start(fail_at_once());
  turn(here_), turn(there_), turn(here_);
  ASSERT_TRUE(ended_ && failure_);
  EXPECT_THROW(std::rethrow_exception(failure_), std::runtime_error);
}

TEST_F(RunOn, CancellingTheCallerCancelsTheTask) {
  bool cancelled = false;
  start(sleep(&cancelled));
  turn(here_), turn(there_);
  cancel();
  turn(here_);
  EXPECT_FALSE(ended_) << "the task has to end first";
  turn(there_), turn(here_);
  EXPECT_TRUE(cancelled && ended_ && failure_);
}

// The caller has ended, and what it was cancelled by is freed, before the other strand hears of it.
TEST_F(RunOn, ACancellationThatCrossesTheEndTouchesNothing) {
  start(give_back(3));
  turn(here_);
  cancel();
  turn(there_), turn(here_);
  EXPECT_TRUE(ended_);
  cancel_.reset();
  turn(there_);
}

TEST_F(RunOn, ATaskThatIsCancelledBeforeItsTurnStillEnds) {
  start(give_back(3));
  turn(here_);
  cancel();
  turn(here_), turn(there_), turn(here_);
  EXPECT_TRUE(ended_);
}

}  // namespace
}  // namespace fluvial::net

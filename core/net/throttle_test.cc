#include "core/net/throttle.h"

#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>

#include "core/base/testing.h"
#include "core/net/test_support.h"

namespace fluvial::net {
namespace {

constexpr Duration kPause = std::chrono::milliseconds(5);

class ThrottleTest : public testing::Test {
 protected:
  void on_strand(std::function<void()> f) { asio::post(strand_, asio::use_future(std::move(f))).get(); }
  void ask(int times) {
    for (int i = 0; i < times; ++i) throttle_.ask();
  }
  void wait_for(int acts) {
    acts_.wait([acts](int so_far) { return so_far >= acts; });
  }

  Threads threads_;
  Executor strand_ = asio::make_strand(threads_.executor());
  Watched<int> acts_;
  Throttle throttle_{strand_, kPause, [this] { acts_.change([](int& acts) { ++acts; }); }};
};

TEST_F(ThrottleTest, OfACrowdTheFirstActsAtOnceAndTheRestTogether) {
  on_strand([&] {
    ask(100);
    EXPECT_EQ(acts_.copy(), 1);
  });
  wait_for(2);
  on_strand([&] { ask(1); });
  wait_for(3);
  on_strand([&] { throttle_.stop(); });
  EXPECT_EQ(acts_.copy(), 3);
}

TEST_F(ThrottleTest, WhatIsDoneNowIsNotDoneAgain) {
  on_strand([&] {
    ask(2);
    throttle_.act_now();
    EXPECT_EQ(acts_.copy(), 2);
    ask(1);
  });
  wait_for(3);
  on_strand([&] { throttle_.stop(); });
  EXPECT_EQ(acts_.copy(), 3);
}

TEST_F(ThrottleTest, OnceItIsStoppedNothingIsDone) {
  on_strand([&] {
    ask(2);
    throttle_.stop();
    ask(1);
    throttle_.act_now();
  });
  on_strand([&] { EXPECT_EQ(acts_.copy(), 1); });
}

}  // namespace
}  // namespace fluvial::net

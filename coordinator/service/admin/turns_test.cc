#include "coordinator/service/admin/turns.h"

#include <gtest/gtest.h>

#include "core/tree/test_runtime.h"

namespace fluvial::coordinator::admin {
namespace {

constexpr NodeId kAnna(9);
constexpr NodeId kBert(10);

class TurnsTest : public ::testing::Test {
 protected:
  net::Awaitable<void> hold(NodeId who) {
    const auto turn = co_await turns_.take(who);
    begun_.put(who);
    co_await released_.wait();
  }
  std::future<void> begin(NodeId who) {
    return net::asio::co_spawn(runtime_.get().strand, hold(who), net::asio::use_future);
  }
  void release() {
    runtime_.on_strand([this] { released_.notify_all(); });
  }

  tree::TestRuntime runtime_{Role::kCoordinator};
  Turns turns_{runtime_.get().strand};
  net::AsyncSignal released_{runtime_.get().strand};
  tree::Mailbox<NodeId> begun_;
};

TEST_F(TurnsTest, WhoAsksForMuchAtATimeWaitsAndKeepsNobodyElseWaiting) {
  std::vector<std::future<void>> held;
  for (std::size_t i = 0; i < Turns::kOfOneMax; ++i) {
    held.push_back(begin(kAnna));
    EXPECT_EQ(begun_.take(), kAnna);
  }
  held.push_back(begin(kAnna));  // on the strand before the next
  held.push_back(begin(kBert));
  EXPECT_EQ(begun_.take(), kBert);
  release();
  EXPECT_EQ(begun_.take(), kAnna) << "now it is its turn";
  release();
  for (std::future<void>& done : held) done.get();
}

}  // namespace
}  // namespace fluvial::coordinator::admin

// Rounds with several passes (docs/design/phases.md).
#include "aggregator/logic/test_region.h"

namespace fluvial::aggregator {
namespace {

using namespace std::chrono_literals;

Opening pass_opening(std::uint32_t pass, std::uint32_t attempt = 1, std::byte mean = std::byte{1}) {
  Opening opening = aggregator::opening(attempt);
  opening.subject.pass = round::Pass{.index = pass, .count = 2, .value_count = 8};
  if (pass > 0) opening.subject.pass->mean = round::VectorRef{{mean}, 32};
  return opening;
}

TEST(RegionMachine, EachPassOfARoundIsARoundToIt) {
  RegionMachine machine;
  machine.opened(pass_opening(0), at(0s));
  const auto first = all<SendPartial>(bring(machine, 1, {1, 2, 3}, at(1s)));
  ASSERT_EQ(first.size(), 1u);
  const Effects opened = machine.opened(pass_opening(1), at(2s));  // before the receipt
  EXPECT_EQ(all<ResetSum>(opened).size(), 1u);
  EXPECT_EQ(all<Release>(opened).size(), 1u) << "what was given to the pass before";
  EXPECT_TRUE(machine.receipt(first[0].sequence, {}, {}, at(2s)).empty()) << "of the pass before";
  EXPECT_EQ(machine.gather().awaited().size(), 3u);
  const auto second = all<SendPartial>(bring(machine, 2, {1, 2, 3}, at(3s)));
  ASSERT_EQ(second.size(), 1u);
  EXPECT_GT(second[0].sequence, first[0].sequence);
}

TEST(RegionMachine, TheNextAttemptKeepsTheSumOfItsFirstPassAlone) {
  RegionMachine first;
  first.opened(pass_opening(0), at(0s));
  bring(first, 1, {1}, at(1s));
  EXPECT_TRUE(all<ResetSum>(first.opened(pass_opening(0, 2), at(2s))).empty());
  EXPECT_EQ(first.gather().held().size(), 1u);

  RegionMachine second;
  second.opened(pass_opening(1), at(0s));
  bring(second, 1, {1}, at(1s));
  EXPECT_EQ(all<ResetSum>(second.opened(pass_opening(0, 2), at(2s))).size(), 1u);
  EXPECT_TRUE(second.gather().held().empty());
  bring(second, 2, {1}, at(3s));
  second.opened(pass_opening(1, 2, std::byte{2}), at(4s));
  EXPECT_TRUE(second.gather().held().empty()) << "of another mean";
}

}  // namespace
}  // namespace fluvial::aggregator

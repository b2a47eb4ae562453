// A region's round while sites are denied: revoked, or enrolled anew.
#include "aggregator/logic/test_region.h"

namespace fluvial::aggregator {
namespace {

using namespace std::chrono_literals;

TEST(RegionMachine, NobodyWaitsForASiteThatIsDenied) {
  RegionMachine machine;
  EXPECT_TRUE(machine.denied({SiteId(9)}, at(0s)).empty()) << "no round is open";
  machine.opened(opening(), at(0s));
  bring(machine, 1, {1}, at(1s));
  EXPECT_TRUE(machine.denied({SiteId(1), SiteId(9)}, at(2s)).empty()) << "what is in stays in, others are awaited";
  EXPECT_TRUE(all<SendPartial>(machine.denied({SiteId(3), SiteId(9)}, at(2s))).empty()) << "site 2 is awaited";
  EXPECT_EQ(machine.admit(SiteId(3), Epoch(1), 10).error().code, Code::kFailedPrecondition);
  const auto sent = all<SendPartial>(bring(machine, 2, {2}, at(3s)));
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].contributors, set_of({1, 2}));
  ASSERT_EQ(sent[0].refusals.size(), 1u);
  EXPECT_EQ(sent[0].refusals[0].site, SiteId(3));
  EXPECT_FALSE(round::drops_update(sent[0].refusals[0].error.code)) << "once enrolled again it brings its work";
  EXPECT_TRUE(sent[0].missing.empty());
}

TEST(RegionMachine, TheLastOneAwaitedIsDeniedAndTheRoundGoesUpAtOnce) {
  RegionMachine machine;
  machine.opened(opening(), at(0s));
  bring(machine, 1, {1, 2}, at(1s));
  const auto sent = all<SendPartial>(machine.denied({SiteId(3)}, at(2s)));
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].contributors, set_of({1, 2}));
  machine.receipt(sent[0].sequence, {}, {}, at(3s));
  machine.closed();
  machine.opened(opening(1, {}, 2), at(4s));
  EXPECT_EQ(all<SendPartial>(bring(machine, 2, {1, 2}, at(5s))).size(), 1u) << "nor in the rounds after";
}

TEST(RegionMachine, WhoIsDeniedNoLongerIsAwaitedUnderItsNextLease) {
  RegionMachine machine;
  machine.opened(opening(), at(0s));
  machine.denied({SiteId(3)}, at(1s));
  machine.denied({}, at(2s));
  Opening anew = opening();
  anew.participants[2].lease = Epoch(2);
  machine.opened(anew, at(3s));
  EXPECT_TRUE(all<SendPartial>(bring(machine, 1, {1, 2}, at(4s))).empty())
      << "it has enrolled anew, and may bring its work";
}

}  // namespace
}  // namespace fluvial::aggregator

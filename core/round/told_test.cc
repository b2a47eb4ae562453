#include "core/round/told.h"

#include <gtest/gtest.h>

namespace fluvial::round {
namespace {

constexpr NodeId kLeft(10);
constexpr NodeId kRight(20);

std::vector<Participant> participants(std::uint64_t lease_of_one) {
  return {{SiteId(1), Epoch(lease_of_one), 100}, {SiteId(2), Epoch(1), 100}};
}
Told::Way ways(NodeId one, NodeId two) {
  return [=](const Participant& p) { return p.site == SiteId(1) ? one : two; };
}

TEST(Told, AChildHearsOfThoseBelowItAndOfNobodyElse) {
  Told told;
  EXPECT_EQ(told.tell(kLeft, participants(1), ways(kLeft, kRight)).participants.size(), 1u);
  EXPECT_TRUE(told.tell(NodeId(30), participants(1), ways(kLeft, kRight)).empty());
}

TEST(Told, TheOldParentHearsOnceThatASiteIsGone) {
  Told told;
  told.tell(kLeft, participants(1), ways(kLeft, kRight));
  const auto moved = ways(kRight, kRight);
  EXPECT_EQ(told.children_of({SiteId(1)}), std::vector{kLeft});
  EXPECT_EQ(told.tell(kLeft, participants(2), moved).gone, std::vector{SiteId(1)});
  EXPECT_TRUE(told.tell(kLeft, participants(2), moved).empty());
  EXPECT_EQ(told.tell(kRight, participants(2), moved).participants.size(), 2u);
  EXPECT_EQ(told.children_of({SiteId(1)}), std::vector{kRight});
}

TEST(Told, ASiteThatIsAwayForAMomentIsNotGone) {
  Told told;
  told.tell(kLeft, participants(1), ways(kLeft, kRight));
  EXPECT_TRUE(told.tell(kLeft, participants(1), ways(NodeId(0), kRight)).gone.empty());
  EXPECT_EQ(told.tell(kLeft, participants(2), ways(NodeId(0), kRight)).gone.size(), 1u)
      << "but under another lease it is";
}

}  // namespace
}  // namespace fluvial::round

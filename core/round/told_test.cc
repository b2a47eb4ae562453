#include "core/round/told.h"

#include <gtest/gtest.h>

namespace fluvial::round {
namespace {

constexpr NodeId kLeft(10);
constexpr NodeId kRight(20);

std::vector<Participant> told_participants(std::uint64_t lease_of_one) {
  return {{SiteId(1), Epoch(lease_of_one), 100}, {SiteId(2), Epoch(1), 100}};
}
Told::Way ways(NodeId one, NodeId two) {
  return [=](const Participant& p) { return p.site == SiteId(1) ? one : two; };
}

Told::Cut tell(Told& told, NodeId child, const std::vector<Participant>& participants, const Told::Way& way) {
  return told.tell({child}, participants, way)[child];
}

TEST(Told, AChildHearsOfThoseBelowItAndOfNobodyElse) {
  Told told;
  EXPECT_EQ(tell(told, kLeft, told_participants(1), ways(kLeft, kRight)).participants.size(), 1u);
  EXPECT_TRUE(tell(told, NodeId(30), told_participants(1), ways(kLeft, kRight)).empty());
}

TEST(Told, TheOldParentHearsOnceThatASiteIsGone) {
  Told told;
  tell(told, kLeft, told_participants(1), ways(kLeft, kRight));
  const auto moved = ways(kRight, kRight);
  EXPECT_EQ(told.children_of({SiteId(1)}), std::vector{kLeft});
  EXPECT_EQ(tell(told, kLeft, told_participants(2), moved).gone, std::vector{SiteId(1)});
  EXPECT_TRUE(tell(told, kLeft, told_participants(2), moved).empty());
  EXPECT_EQ(tell(told, kRight, told_participants(2), moved).participants.size(), 2u);
  EXPECT_EQ(told.children_of({SiteId(1)}), std::vector{kRight});
}

TEST(Told, ASiteThatIsAwayForAMomentIsNotGone) {
  Told told;
  tell(told, kLeft, told_participants(1), ways(kLeft, kRight));
  EXPECT_TRUE(tell(told, kLeft, told_participants(1), ways(NodeId(0), kRight)).gone.empty());
  EXPECT_EQ(tell(told, kLeft, told_participants(2), ways(NodeId(0), kRight)).gone.size(), 1u)
      << "but under another lease it is";
}

TEST(Told, AllAtOnceHearWhatEachWouldHearAlone) {
  Told told;
  told.tell({kLeft, kRight}, told_participants(1), ways(kLeft, kRight));
  auto cuts = told.tell({kLeft, kRight}, told_participants(2), ways(kRight, kRight));
  EXPECT_EQ(cuts[kLeft].gone, std::vector{SiteId(1)});
  EXPECT_EQ(cuts[kRight].participants.size(), 2u);
  cuts = told.tell({kRight}, told_participants(3), ways(kLeft, kRight));
  EXPECT_FALSE(cuts.contains(kLeft)) << "it is not here";
  EXPECT_TRUE(told.children_of({SiteId(1)}).empty());
}

}  // namespace
}  // namespace fluvial::round

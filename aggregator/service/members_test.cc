#include "aggregator/service/members.h"

#include <gtest/gtest.h>

namespace fluvial::aggregator {
namespace {

tree::Child child(std::uint32_t node, std::uint64_t lease = 1) {
  tree::Child child;
  child.node = NodeId(node);
  child.name = "node-" + std::to_string(node);
  child.lease = Epoch(lease);
  return child;
}
v1::MemberChange up(std::initializer_list<std::uint32_t> nodes) {
  v1::MemberChange change;
  for (const std::uint32_t node : nodes) {
    v1::Member& member = *change.add_up();
    member.set_node(node);
    member.set_lease_epoch(1);
  }
  return change;
}

TEST(Members, WhoLeavesTakesEverybodyAlongWhoCameByItsWay) {
  Members members(NodeId(2));
  EXPECT_EQ(members.joined(child(8)).up(0).parent(), 2U);
  members.changed(NodeId(8), up({11, 12}));
  members.joined(child(9));
  members.changed(NodeId(9), up({12}));
  EXPECT_EQ(members.via(SiteId(11)), NodeId(8));
  EXPECT_EQ(members.via(SiteId(12)), NodeId(9)) << "who says so last";
  EXPECT_EQ(members.everybody().up_size(), 4);
  const v1::MemberChange gone = members.left(NodeId(8));
  EXPECT_EQ(gone.down_size(), 2) << "itself and 11";
  EXPECT_EQ(members.via(SiteId(11)), NodeId(0));
  EXPECT_EQ(members.via(SiteId(12)), NodeId(9));
  EXPECT_EQ(members.left(NodeId(8)).down_size(), 0);
}

TEST(Members, AChildSpeaksForThoseByItsWayAndNotForThisNode) {
  Members members(NodeId(2));
  members.joined(child(8));
  members.joined(child(9));
  members.changed(NodeId(8), up({2, 11}));
  EXPECT_EQ(members.via(NodeId(2)), NodeId(0)) << "this node is below nobody of its own";
  v1::MemberChange down;
  down.add_down(11);
  members.changed(NodeId(9), down);
  EXPECT_EQ(members.via(SiteId(11)), NodeId(8));
  members.changed(NodeId(8), down);
  EXPECT_EQ(members.via(SiteId(11)), NodeId(0));
}

TEST(Members, TheWayToASiteIsByTheLeaseThatCounts) {
  Members members(NodeId(2));
  members.joined(child(8, 5));
  EXPECT_EQ(members.way_to({SiteId(8), Epoch(5), 1}), NodeId(8));
  EXPECT_EQ(members.way_to({SiteId(8), Epoch(6), 1}), NodeId(0)) << "it has moved, and is announced here still";
}

}  // namespace
}  // namespace fluvial::aggregator

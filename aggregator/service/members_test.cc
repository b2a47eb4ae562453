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
v1::MemberChange up(std::uint32_t parent, std::initializer_list<std::uint32_t> nodes, std::uint64_t lease = 1) {
  v1::MemberChange change;
  for (const std::uint32_t node : nodes) {
    v1::Member& member = *change.add_up();
    member.set_node(node);
    member.set_lease_epoch(lease);
    member.set_parent(parent);
  }
  return change;
}

TEST(Members, WhoLeavesTakesEverybodyAlongWhoCameByItsWay) {
  Members members(NodeId(2));
  EXPECT_EQ(members.joined(child(8)).up(0).parent(), 2U);
  members.changed(NodeId(8), up(8, {11, 12}));
  members.joined(child(9));
  members.changed(NodeId(9), up(9, {12}, 2));
  EXPECT_EQ(members.via(SiteId(11)), NodeId(8));
  EXPECT_EQ(members.via(SiteId(12)), NodeId(9)) << "by its newer lease";
  EXPECT_EQ(members.everybody().front().up_size(), 4);
  const v1::MemberChange gone = members.left(NodeId(8));
  EXPECT_EQ(gone.down_size(), 2) << "itself and 11";
  EXPECT_EQ(members.via(SiteId(11)), NodeId(0));
  EXPECT_EQ(members.via(SiteId(12)), NodeId(9));
  EXPECT_EQ(members.left(NodeId(8)).down_size(), 0);
}

TEST(Members, WhatAChildPutsIntoAMemberIsNotKept) {
  Members members(NodeId(2));
  members.joined(child(8));
  v1::MemberChange change = up(8, {11});
  change.mutable_up(0)
      ->GetReflection()
      ->MutableUnknownFields(change.mutable_up(0))
      ->AddLengthDelimited(99, std::string(1'000'000, 'x'));
  EXPECT_LT(members.changed(NodeId(8), change).ByteSizeLong(), 100U) << "nor passed on";
  EXPECT_LT(members.everybody().front().ByteSizeLong(), 200U);
}

TEST(Members, HoweverManyThereAreEachMessageFitsAFrame) {
  Members members(NodeId(2));
  EXPECT_EQ(members.everybody().size(), 1U) << "also of nobody";
  members.joined(child(8));
  v1::MemberChange change;
  for (std::uint32_t node = 0; node < 99'999; ++node) {
    v1::Member& member = *change.add_up();
    member.set_node(100 + node);
    member.set_name(std::string(63, 'n'));
    member.set_lease_epoch(std::uint64_t{1} << 60);
    member.set_parent(8);
  }
  members.changed(NodeId(8), change);
  int count = 0;
  for (const v1::MemberChange& some : members.everybody()) {
    EXPECT_LT(some.ByteSizeLong(), std::size_t{1} << 21);
    count += some.up_size();
  }
  EXPECT_EQ(count, 100'000);
}

TEST(Members, AChildSpeaksForThoseByItsWayAndNotForThisNode) {
  Members members(NodeId(2));
  members.joined(child(8));
  members.joined(child(9));
  members.changed(NodeId(8), up(8, {2, 11}));
  EXPECT_EQ(members.via(NodeId(2)), NodeId(0)) << "this node is below nobody of its own";
  v1::MemberChange down;
  down.add_down(11);
  members.changed(NodeId(9), down);
  EXPECT_EQ(members.via(SiteId(11)), NodeId(8));
  members.changed(NodeId(8), down);
  EXPECT_EQ(members.via(SiteId(11)), NodeId(0));
}

TEST(Members, AChildCannotClaimItsSiblingsSites) {
  Members members(NodeId(2));
  members.joined(child(8));
  members.joined(child(9));
  members.changed(NodeId(8), up(8, {11}, 5));
  EXPECT_EQ(members.changed(NodeId(9), up(9, {11}, 5)).up_size(), 0) << "under the lease that it has elsewhere";
  EXPECT_EQ(members.changed(NodeId(9), up(9, {11}, 4)).up_size(), 0) << "or under an older one";
  EXPECT_EQ(members.changed(NodeId(9), up(8, {11, 12}, 6)).up_size(), 0) << "below its sibling";
  EXPECT_EQ(members.changed(NodeId(9), up(9, {8}, 6)).up_size(), 1) << "an aggregator does move";
  EXPECT_EQ(members.via(SiteId(11)), NodeId(8));
  EXPECT_EQ(members.via(SiteId(12)), NodeId(0));
}

TEST(Members, WhoIsBelowAnAggregatorComesAndGoesWithIt) {
  Members members(NodeId(2));
  members.joined(child(8));
  members.changed(NodeId(8), up(8, {21}));
  members.changed(NodeId(8), up(21, {31}));
  members.joined(child(21, 2));  // which has lost its parent before this node has
  EXPECT_EQ(members.changed(NodeId(21), up(21, {31})).up_size(), 1) << "the site's own lease has not changed";
  EXPECT_EQ(members.via(SiteId(31)), NodeId(21));
  const v1::MemberChange left = members.left(NodeId(8));
  for (const std::uint32_t down : left.down()) EXPECT_NE(down, 31u);
  EXPECT_EQ(members.via(SiteId(31)), NodeId(21));
}

TEST(Members, WhatIsPassedOnIsWhatHolds) {
  Members members(NodeId(2));
  members.joined(child(8));
  v1::MemberChange change = up(21, {31, 32});  // below one that is named after them
  *change.add_up() = up(8, {21}).up(0);
  change.add_down(99);
  const v1::MemberChange holds = members.changed(NodeId(8), change);
  EXPECT_EQ(holds.up_size(), 3);
  EXPECT_EQ(holds.down_size(), 0) << "who was never here";
  EXPECT_EQ(members.via(SiteId(32)), NodeId(8));
}

TEST(Members, AChildThatInventsMembersFillsNothing) {
  Members members(NodeId(2));
  members.joined(child(8));
  v1::MemberChange change;
  for (std::uint32_t node = 1'000; node < 301'000; ++node) {
    change.add_up()->set_node(node);
    change.mutable_up(change.up_size() - 1)->set_parent(8);
  }
  EXPECT_LE(members.changed(NodeId(8), change).up_size(), 100'000);
  change = up(8, {11});
  change.mutable_up(0)->set_name(std::string(1'000, 'x'));
  EXPECT_EQ(members.changed(NodeId(8), change).up_size(), 0);
}

TEST(Members, TheWayToASiteIsByTheLeaseThatCounts) {
  Members members(NodeId(2));
  members.joined(child(8, 5));
  EXPECT_EQ(members.way_to({SiteId(8), Epoch(5), 1}), NodeId(8));
  EXPECT_EQ(members.way_to({SiteId(8), Epoch(6), 1}), NodeId(0)) << "it has moved, and is announced here still";
}

}  // namespace
}  // namespace fluvial::aggregator

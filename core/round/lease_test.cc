#include "core/round/lease.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fluvial::round {
namespace {

using testing::HasSubstr;

Digest key(unsigned char fill) {
  Digest digest;
  digest.fill(std::byte{fill});
  return digest;
}
LeaseTerms terms() { return {NodeId(7), key(1), Epoch(9), NodeId(2), key(2), HistoryId(3)}; }
template <typename Change>
Code refused(const Change& change) {
  LeaseTerms lease = terms();
  change(lease);
  const Status status = check_lease(lease, terms());
  return status.ok() ? Code{} : status.error().code;
}

TEST(LeaseTest, IsForOneMemberOneKeyAndOneParent) {
  EXPECT_TRUE(check_lease(terms(), terms()).ok());
  EXPECT_EQ(refused([](LeaseTerms& lease) { lease.node = NodeId(8); }), Code::kPermissionDenied);
  EXPECT_EQ(refused([](LeaseTerms& lease) { lease.key = key(4); }), Code::kPermissionDenied);
  EXPECT_EQ(refused([](LeaseTerms& lease) { lease.parent = NodeId(0); }), Code::kPermissionDenied);
  EXPECT_EQ(refused([](LeaseTerms& lease) { lease.parent_key = key(4); }), Code::kPermissionDenied);
}

TEST(LeaseTest, OfAnotherEpochOrHistoryIsStale) {
  EXPECT_EQ(refused([](LeaseTerms& lease) { lease.epoch = Epoch(8); }), Code::kStale);
  EXPECT_EQ(refused([](LeaseTerms& lease) { lease.epoch = Epoch(10); }), Code::kStale);
  EXPECT_EQ(refused([](LeaseTerms& lease) { lease.history = HistoryId(0); }), Code::kStale);
}

TEST(LeaseTest, AParentWhoseKeyTheCoordinatorDoesNotKnowIsTakenByItsNumber) {
  EXPECT_EQ(refused([](LeaseTerms& lease) { lease.parent_key = {}; }), Code{});
}

TEST(PartyTest, IsKnownByRoleNodeNameAndKey) {
  const Party eu{Role::kAggregator, NodeId(2), "eu", key(2)};
  EXPECT_TRUE(check_party(eu, eu).ok());
  EXPECT_TRUE(check_party({Role::kAggregator, NodeId(2), "eu", {}}, eu).ok()) << "its key is not known";
  for (const Party& other :
       {Party{Role::kSite, NodeId(2), "eu", key(2)}, Party{Role::kAggregator, NodeId(3), "eu", key(2)},
        Party{Role::kAggregator, NodeId(2), "us", key(2)}, Party{Role::kAggregator, NodeId(2), "eu", key(3)}}) {
    const Status status = check_party(eu, other);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, Code::kUnauthenticated);
    EXPECT_THAT(status.error().message, HasSubstr("the lease names aggregator eu, node 2, key 020202"));
  }
  EXPECT_THAT(check_party(eu, {Role::kAggregator, NodeId(3), "us", key(3)}).error().message,
              HasSubstr("who answers there is aggregator us, node 3, key 030303"));
}

TEST(PartyTest, TheCoordinatorIsKnownByItsKey) {
  const Party root{Role::kCoordinator, NodeId(1), "coordinator", key(1)};
  EXPECT_TRUE(check_party({Role::kCoordinator, {}, {}, {}}, root).ok()) << "whoever comes for a lease knows no more";
  EXPECT_TRUE(check_party({Role::kCoordinator, {}, {}, key(1)}, root).ok());
  EXPECT_FALSE(check_party({Role::kCoordinator, {}, {}, key(2)}, root).ok());
  EXPECT_FALSE(check_party({Role::kCoordinator, {}, {}, {}}, {Role::kAggregator, NodeId(2), "eu", key(2)}).ok());
}

TEST(NewestLeasesTest, AnOlderOneOfTheSameChildIsStale) {
  NewestLeases newest;
  EXPECT_TRUE(newest.check(NodeId(7), Epoch(1)).ok());
  newest.note(NodeId(7), Epoch(9));
  newest.note(NodeId(7), Epoch(4));
  EXPECT_TRUE(newest.check(NodeId(7), Epoch(9)).ok());
  EXPECT_TRUE(newest.check(NodeId(8), Epoch(1)).ok());
  EXPECT_EQ(newest.check(NodeId(7), Epoch(8)).error().code, Code::kStale);
}

}  // namespace
}  // namespace fluvial::round

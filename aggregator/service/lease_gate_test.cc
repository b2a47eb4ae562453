#include "aggregator/service/lease_gate.h"

#include <gtest/gtest.h>

#include "core/tree/lease_statement.h"

namespace fluvial::aggregator {
namespace {

struct Key {
  identity::PrivateKey own = identity::PrivateKey::generate().value();
  identity::PublicKey open = identity::PublicKey::of(own);
};

class LeaseGateTest : public testing::Test {
 protected:
  LeaseGateTest() : gate_(peer(Role::kAggregator, 2, aggregator_)) {
    own_.coordinator_key = coordinator_.open;
    own_.statement = std::make_shared<const v1::Signed>();
  }
  static identity::PeerIdentity peer(Role role, std::uint32_t node, const Key& key) {
    return {role, NodeId(node), "node-" + std::to_string(node), "", {}, key.open};
  }
  round::LeaseTerms terms(std::uint64_t epoch = 9) const {
    return {NodeId(7), site_.open.id(), Epoch(epoch), NodeId(2), aggregator_.open.id(), round::HistoryId(3)};
  }
  v1::Signed sign(const round::LeaseTerms& terms, const Key& key) const {
    return tree::sign_lease(key.own, terms, WallTime()).value();
  }
  Code admit(std::optional<v1::Signed> shown, std::uint64_t epoch = 9) { return admit(std::move(shown), epoch, site_); }
  Code admit(std::optional<v1::Signed> shown, std::uint64_t epoch, const Key& key) {
    tree::Child child;
    child.node = NodeId(7);
    child.name = "node-7";
    child.lease = Epoch(epoch);
    child.history = round::HistoryId(3);
    if (shown) child.lease_shown = std::make_shared<const v1::Signed>(std::move(*shown));
    const Status status = gate_.admit(child, peer(Role::kSite, 7, key));
    return status.ok() ? Code{} : status.error().code;
  }

  Key coordinator_;
  Key aggregator_;
  Key site_;
  Key stranger_;
  tree::Lease own_;
  LeaseGate gate_;
};

TEST_F(LeaseGateTest, LetsInWhoHoldsTheLeaseThatItNames) {
  EXPECT_EQ(admit(sign(terms(), coordinator_)), Code::kStale) << "before the aggregator has a lease of its own";
  gate_.granted(own_);
  EXPECT_EQ(admit(sign(terms(), coordinator_)), Code{});
  EXPECT_EQ(admit(sign(terms(), coordinator_)), Code{}) << "again";
}

TEST_F(LeaseGateTest, AnInventedLeaseIsNone) {
  gate_.granted(own_);
  EXPECT_EQ(admit(std::nullopt), Code::kStale);
  EXPECT_EQ(admit(sign(terms(), stranger_)), Code::kUnauthenticated);
  EXPECT_EQ(admit(sign(terms(), site_)), Code::kUnauthenticated);
  EXPECT_EQ(admit(sign(terms(), coordinator_), 10), Code::kStale) << "another epoch than the statement's";
  EXPECT_EQ(admit(v1::Signed()), Code::kInvalidArgument);
  v1::Signed bent = sign(terms(), coordinator_);
  bent.mutable_body()->back() ^= 1;
  EXPECT_EQ(admit(bent), Code::kUnauthenticated);
  v1::Signed long_one;
  long_one.set_body(std::string(1 << 20, 'x'));
  EXPECT_EQ(admit(long_one), Code::kInvalidArgument);
}

TEST_F(LeaseGateTest, ALeaseIsGoodForItsOwnersKeyAlone) {
  gate_.granted(own_);
  EXPECT_EQ(admit(sign(terms(), coordinator_), 9, stranger_), Code::kPermissionDenied);
}

TEST_F(LeaseGateTest, AnOlderLeaseIsNoMoreGoodOnceANewerOneWasShown) {
  gate_.granted(own_);
  EXPECT_EQ(admit(sign(terms(8), coordinator_), 8), Code{});
  EXPECT_EQ(admit(sign(terms(9), coordinator_), 9), Code{});
  EXPECT_EQ(admit(sign(terms(8), coordinator_), 8), Code::kStale);
}

TEST_F(LeaseGateTest, WhoCannotShowItsLeaseIsLetInWhenTheCoordinatorSaysSo) {
  gate_.granted(own_);
  EXPECT_EQ(gate_.told(sign(terms(), stranger_)), NodeId(0)) << "not the coordinator's word";
  EXPECT_EQ(admit(std::nullopt), Code::kStale);
  EXPECT_EQ(gate_.told(sign(terms(), coordinator_)), NodeId(2));
  EXPECT_EQ(admit(std::nullopt), Code{});
  EXPECT_EQ(admit(std::nullopt, 10), Code::kStale) << "of that lease alone";
  EXPECT_EQ(admit(std::nullopt, 9, stranger_), Code::kPermissionDenied);
  round::LeaseTerms elsewhere = terms(11);
  elsewhere.parent = NodeId(5);
  EXPECT_EQ(gate_.told(sign(elsewhere, coordinator_)), NodeId(5)) << "another aggregator's to know";
  EXPECT_EQ(admit(std::nullopt, 11), Code::kStale);
}

TEST_F(LeaseGateTest, WithoutASignedLeaseOfItsOwnItAsksForNone) {
  gate_.granted(tree::Lease{});
  EXPECT_EQ(admit(std::nullopt), Code{});
  gate_.granted(own_);
  EXPECT_EQ(admit(std::nullopt), Code::kStale) << "once it signs, nobody is";
  gate_.granted(tree::Lease{});
  EXPECT_EQ(admit(std::nullopt), Code{}) << "below an aggregator of the version before, no lease here is signed";
}

}  // namespace
}  // namespace fluvial::aggregator

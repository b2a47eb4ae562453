// Whom the coordinator refuses, said once and followed everywhere.
#include "core/tree/denials.h"

#include <gtest/gtest.h>

namespace fluvial::tree {
namespace {

using identity::PeerIdentity;
using identity::PrivateKey;
using identity::PublicKey;

class DenialsTest : public testing::Test {
 protected:
  v1::Denials denials(std::uint64_t number, NodeId node, round::HistoryId history = {}) {
    identity::DenyEntries entries;
    entries.nodes = {node};
    entries.keys = {stolen_.id()};
    entries.refused_serials = {"5e"};
    return signed_denials(entries, history, number, key_).value();
  }
  bool admits(NodeId node, const PublicKey& key = {}, const std::string& serial = "77") {
    return deny_->check(PeerIdentity{Role::kSite, node, "a", serial, {}, key}).ok();
  }

  PrivateKey key_ = PrivateKey::generate().value();
  PublicKey coordinator_ = PublicKey::of(key_);
  PublicKey stolen_ = PublicKey::of(PrivateKey::generate().value());
  std::shared_ptr<identity::DenyList> deny_ = std::make_shared<identity::DenyList>();
  HeardDenials heard_{deny_};
};

TEST_F(DenialsTest, NobodyIsAdmittedBeforeTheCoordinatorWasHeard) {
  EXPECT_EQ(heard_.may_admit().error().code, Code::kStale);
  const v1::Denials said = denials(1, NodeId(7));
  ASSERT_TRUE(heard_.granted({}, coordinator_, &said).ok());
  EXPECT_TRUE(heard_.may_admit().ok());
  EXPECT_FALSE(admits(NodeId(7)));
  EXPECT_FALSE(admits(NodeId(8), stolen_)) << "whatever the name";
  EXPECT_FALSE(admits(NodeId(8), {}, "5e"));
  EXPECT_TRUE(admits(NodeId(8)));
}

TEST_F(DenialsTest, NewerOnesReplaceAndOlderOnesDoNot) {
  const v1::Denials first = denials(3, NodeId(7));
  ASSERT_TRUE(heard_.granted({}, coordinator_, &first).ok());
  EXPECT_TRUE(heard_.told(denials(4, NodeId(8))).value());
  EXPECT_TRUE(admits(NodeId(7)));
  EXPECT_FALSE(admits(NodeId(8)));
  EXPECT_FALSE(heard_.told(denials(3, NodeId(7))).value()) << "passed on late";
  EXPECT_FALSE(heard_.told(denials(4, NodeId(7))).value());
  ASSERT_TRUE(heard_.granted({}, coordinator_, &first).ok());
  EXPECT_FALSE(admits(NodeId(8)));
}

TEST_F(DenialsTest, OnlyTheCoordinatorsWordCounts) {
  const v1::Denials good = denials(1, NodeId(7));
  ASSERT_TRUE(heard_.granted({}, coordinator_, &good).ok());
  v1::Denials forged = signed_denials({}, {}, 9, PrivateKey::generate().value()).value();
  EXPECT_EQ(heard_.told(forged).error().code, Code::kUnauthenticated);
  v1::Denials changed = denials(9, NodeId(7));
  changed.mutable_statement()->set_body(denials(9, NodeId(8)).statement().body());
  EXPECT_EQ(heard_.told(changed).error().code, Code::kUnauthenticated);
  changed.mutable_statement()->clear_signature();
  EXPECT_EQ(heard_.told(changed).error().code, Code::kUnauthenticated);
  EXPECT_FALSE(admits(NodeId(7))) << "what was said before stands";
}

TEST_F(DenialsTest, ACoordinatorOfTheVersionBeforeTellsNoneAndNotAfterOneThatDid) {
  ASSERT_TRUE(heard_.granted({}, coordinator_, nullptr).ok());
  EXPECT_TRUE(heard_.may_admit().ok());
  const v1::Denials said = denials(1, NodeId(7));
  ASSERT_TRUE(heard_.granted({}, coordinator_, &said).ok());
  EXPECT_EQ(heard_.granted({}, coordinator_, nullptr).error().code, Code::kFailedPrecondition);
}

TEST_F(DenialsTest, AnotherHistoryBeginsWithItsLease) {
  const round::HistoryId restored(5);
  const v1::Denials before = denials(9, NodeId(7));
  ASSERT_TRUE(heard_.granted({}, coordinator_, &before).ok());
  EXPECT_FALSE(heard_.told(denials(2, NodeId(8), restored)).value());
  const v1::Denials after = denials(2, NodeId(8), restored);
  ASSERT_TRUE(heard_.granted(restored, coordinator_, &after).ok());
  EXPECT_FALSE(admits(NodeId(8)));
  EXPECT_TRUE(admits(NodeId(7))) << "the restored coordinator knows nothing of it";
  EXPECT_FALSE(heard_.told(denials(10, NodeId(7))).value());
}

}  // namespace
}  // namespace fluvial::tree

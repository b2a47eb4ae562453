// Leases as the registry grants and signs them.
#include "coordinator/service/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/digest/sha256.h"
#include "core/tree/lease_statement.h"
#include "core/tree/test_runtime.h"
#include "core/wire/mapping.h"

namespace fluvial::coordinator {
namespace {

using testing::HasSubstr;

class RegistryTest : public testing::Test {
 protected:
  RegistryTest() {
    journal_ = store::CoordinatorJournal::open(test_.files(), "/journal.sqlite").value();
    eu_ = enrol(Role::kAggregator, "eu", "eu");
    site_ = enrol(Role::kSite, "hospital-a", "eu/west");
    open();
  }
  void open() {
    registry_.emplace(test_.get(), *journal_, std::make_shared<identity::DenyList>(),
                      FailoverSettings{kHour, kHour, kHour}, key_);
    ASSERT_TRUE(registry_->load().ok());
  }
  identity::PeerIdentity enrol(Role role, const std::string& name, const std::string& region) {
    const identity::PublicKey key = identity::PublicKey::of(identity::PrivateKey::generate().value());
    const WallTime now = test_.get().clock.wall_now();
    store::TokenRow token;
    token.id = name;
    token.secret_hash = sha256(as_byte_span(name));
    token.role = role;
    token.name = name;
    token.expires_at = now + kHour;
    EXPECT_TRUE(journal_->add_token(token).ok());
    store::NodeRow row;
    row.role = role;
    row.name = name;
    row.region = region;
    row.weight_max = role == Role::kSite ? 10 : 0;
    row.enrolled_at = now;
    const store::NodeRow enrolled = journal_->redeem_token(token.secret_hash, row, now).value();
    return {role, enrolled.id, name, "", {}, key};
  }
  v1::LeaseGrant lease(const identity::PeerIdentity& peer, bool shows_lease = true) {
    v1::LeaseRequest request;
    request.set_shows_lease(shows_lease);
    if (peer.role == Role::kAggregator) request.set_advertise("eu.example.org:7410");
    const Result<LeaseAnswer> answer = test_.run(registry_->lease(peer, request));
    EXPECT_TRUE(answer.ok()) << answer.error().to_string();
    return test_.on_strand([&] { return registry_->grant(peer, *answer, shows_lease); }).value();
  }
  round::LeaseTerms terms_of(const v1::Signed& lease) const {
    return tree::read_lease(identity::PublicKey::of(*key_), lease).value();
  }

  static constexpr auto kHour = std::chrono::hours(1);
  tree::TestRuntime test_{Role::kCoordinator};
  std::optional<identity::PrivateKey> key_ = identity::PrivateKey::generate().value();
  std::unique_ptr<store::CoordinatorJournal> journal_;
  identity::PeerIdentity eu_;
  identity::PeerIdentity site_;
  std::optional<Registry> registry_;
};

TEST_F(RegistryTest, ALeaseNamesBothEndsByTheirKeys) {
  const v1::LeaseGrant up = lease(eu_);
  EXPECT_EQ(terms_of(up.leases(0)), (round::LeaseTerms{eu_.node, eu_.key.id(), Epoch(up.epoch()), NodeId(0),
                                                       identity::PublicKey::of(*key_).id(), round::HistoryId(0)}));
  const v1::LeaseGrant grant = lease(site_);
  ASSERT_EQ(grant.leases_size(), grant.parents_size());
  EXPECT_EQ(grant.parents(0).node(), eu_.node.value());
  EXPECT_EQ(grant.parents(0).key_sha256(), wire::digest_to_proto(eu_.key.id()));
  EXPECT_EQ(terms_of(grant.leases(0)), (round::LeaseTerms{site_.node, site_.key.id(), Epoch(grant.epoch()), eu_.node,
                                                          eu_.key.id(), round::HistoryId(0)}));
}

TEST_F(RegistryTest, WhoCannotShowItsLeaseIsToldOfToItsParent) {
  lease(eu_);
  const v1::LeaseGrant shown = lease(site_);
  EXPECT_TRUE(registry_->leases_to_tell(eu_.node).empty());
  const v1::LeaseGrant grant = lease(site_, false);
  const std::vector<v1::MemberChange> told = registry_->leases_to_tell(eu_.node);
  ASSERT_EQ(told.size(), 1U);
  ASSERT_EQ(told[0].leases_size(), 1);
  EXPECT_EQ(terms_of(told[0].leases(0)).epoch, Epoch(grant.epoch()));
  EXPECT_TRUE(registry_->leases_to_tell(site_.node).empty());
  lease(site_);
  EXPECT_TRUE(registry_->leases_to_tell(eu_.node).empty()) << "it has been updated";
}

TEST_F(RegistryTest, BelowAnAggregatorOfTheVersionBeforeNothingIsSigned) {
  EXPECT_EQ(lease(eu_, false).leases_size(), 1) << "to itself it is: it leaves it";
  const v1::LeaseGrant grant = lease(site_);
  EXPECT_EQ(grant.leases_size(), 0);
  EXPECT_EQ(grant.parents(0).key_sha256(), wire::digest_to_proto(eu_.key.id()))
      << "it is known by its key all the same";
  EXPECT_TRUE(test_.log().contains("passes no signatures on"));
  lease(eu_);
  EXPECT_EQ(lease(site_).leases_size(), 1);
  lease(eu_, false);
  EXPECT_EQ(lease(site_).leases_size(), 1) << "who has passed signatures on once, does";
}

TEST_F(RegistryTest, WithoutAKeyNothingIsSigned) {
  key_.reset();
  open();
  lease(eu_);
  const v1::LeaseGrant grant = lease(site_, false);
  EXPECT_EQ(grant.leases_size(), 0);
  EXPECT_TRUE(grant.parents(0).key_sha256().empty());
  EXPECT_TRUE(registry_->leases_to_tell(eu_.node).empty());
}

TEST_F(RegistryTest, AHostileAnnouncementIsOneLineOfTheLog) {
  lease(eu_);
  v1::MemberChange change;
  for (std::uint32_t node = 1; node <= 100'000; ++node) change.add_up()->set_node(node);
  EXPECT_TRUE(test_.on_strand([&] { return registry_->members_changed(eu_.node, change); }).empty());
  const auto records = test_.log().records();
  ASSERT_EQ(records.size(), 1U);
  EXPECT_TRUE(test_.log().contains("node 3, node 4, node 5"));
  EXPECT_FALSE(test_.log().contains("node 99"));
}

}  // namespace
}  // namespace fluvial::coordinator

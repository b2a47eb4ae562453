// Leases as the registry grants and signs them.
#include "coordinator/service/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/digest/sha256.h"
#include "core/tree/denials.h"
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
    registry_.emplace(test_.get(), *journal_, deny_, FailoverSettings{kHour, kHour, kHour}, key_);
    ASSERT_TRUE(registry_->load().ok());
  }
  identity::PeerIdentity enrol(Role role, const std::string& name, const std::string& region,
                               const std::string& certificate = "") {
    const identity::PublicKey key = identity::PublicKey::of(identity::PrivateKey::generate().value());
    const WallTime now = test_.get().clock.wall_now();
    store::TokenRow token;
    token.id = name + certificate;
    token.secret_hash = sha256(as_byte_span(token.id));
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
    row.certificate_serial = certificate;
    const store::NodeRow enrolled = journal_->redeem_token(token.secret_hash, row, now).value();
    return {role, enrolled.id, name, certificate, {}, key};
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
  std::shared_ptr<identity::DenyList> deny_ = std::make_shared<identity::DenyList>();
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

// Its renewal was in the journal before the enrolment, and is told after it.
TEST_F(RegistryTest, ARenewalThatAnEnrolmentHasOvertakenBringsTheOldKeyBackToNobody) {
  const identity::PeerIdentity old = enrol(Role::kSite, "hospital-b", "", "0ld");
  const identity::PeerIdentity anew = enrol(Role::kSite, "hospital-b", "", "4new");
  const WallTime now = test_.get().clock.wall_now();
  const store::NodeRow row = journal_->node_named("hospital-b").value().value();
  test_.on_strand([&] {
    registry_->enrolled(row, anew.key.id());
    registry_->renewed(old.node, "0ld2", {old.key.id(), now});
  });
  EXPECT_TRUE(deny_->check(anew).ok());
  EXPECT_EQ(deny_->check(old).error().code, Code::kPermissionDenied);
  const identity::DenyEntries::Current later{anew.key.id(), now + kHour};
  test_.on_strand([&] { registry_->renewed(anew.node, "4new2", later); });
  EXPECT_TRUE(deny_->check(anew).ok());
}

// Whoever has its key cannot wait for a restart to pose as the version before.
TEST_F(RegistryTest, WhoHasPassedSignaturesOnOnceDoesSoAfterARestart) {
  lease(eu_);
  open();
  lease(eu_, false);
  EXPECT_EQ(lease(site_).leases_size(), 1);
  EXPECT_FALSE(test_.log().contains("passes no signatures on"));
}

TEST_F(RegistryTest, AnAggregatorThatEnrolsAnewMayBeOfTheVersionBefore) {
  lease(eu_);
  const identity::PeerIdentity again = enrol(Role::kAggregator, "eu", "eu", "again");
  ASSERT_EQ(again.node, eu_.node);
  ASSERT_TRUE(test_.on_strand([&] { return registry_->enrolled(*journal_->node(again.node).value()); }));
  lease(again, false);
  EXPECT_EQ(lease(site_).leases_size(), 0);
  open();
  lease(again, false);
  EXPECT_EQ(lease(site_).leases_size(), 0) << "after a restart, too";
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

// ---- after a restore: what the journal has forgotten

class RestoredTest : public RegistryTest {
 protected:
  RestoredTest() {
    known_ = with_certificate(enrol(Role::kSite, "hospital-b", "eu", "5b"), "5b", now());
    EXPECT_TRUE(journal_->begin_history(round::HistoryId(7), Epoch(1), now() + kHour).ok());
    open();
  }
  WallTime now() { return test_.get().clock.wall_now(); }
  static identity::PeerIdentity with_certificate(identity::PeerIdentity peer, const std::string& serial,
                                                 WallTime issued) {
    peer.serial_hex = serial;
    peer.issued = issued;
    peer.not_after = issued + std::chrono::hours(24);
    return peer;
  }
  static identity::PeerIdentity with_another_key(identity::PeerIdentity peer) {
    peer.key = identity::PublicKey::of(identity::PrivateKey::generate().value());
    return peer;
  }
  Status lets_in(const identity::PeerIdentity& peer) { return deny_->check(peer); }
  // An aggregator that still has what this coordinator's key said in the history before.
  v1::Denials said_before(const identity::DenyEntries& who, const identity::PrivateKey& by) const {
    return tree::signed_denials(who, round::HistoryId(0), 9, by).value();
  }
  void aggregator_comes_with(const v1::Denials& denials) {
    v1::LeaseRequest request;
    request.set_shows_lease(true);
    request.set_advertise("eu.example.org:7410");
    *request.mutable_denials() = denials;
    EXPECT_TRUE(test_.run(registry_->lease(eu_, request)).ok());
  }
  identity::PeerIdentity known_;
};

TEST_F(RestoredTest, ACertificateThatWasIssuedAfterTheBackupIsAdoptedWhenItsHolderComes) {
  lease(known_);
  const identity::PeerIdentity later = with_certificate(with_another_key(known_), "6c", now() + kHour);
  EXPECT_TRUE(lets_in(later).ok());
  lease(later);
  EXPECT_EQ(journal_->node(known_.node).value()->certificate_serial, "6c");
  EXPECT_FALSE(lets_in(known_).ok()) << "the key before is superseded";
  EXPECT_FALSE(lets_in(with_certificate(with_another_key(known_), "4a", now() - kHour)).ok()) << "older than it";
}

TEST_F(RestoredTest, WhomTheLostHistoryRefusedIsRefusedAgain) {
  lease(known_);
  const identity::PeerIdentity later = with_certificate(with_another_key(known_), "6c", now() + kHour);
  identity::DenyEntries who;
  who.nodes = {site_.node};
  who.keys = {later.key.id()};
  who.refused_serials = {known_.serial_hex};
  const std::uint64_t number = registry_->refused().number;
  aggregator_comes_with(said_before(who, identity::PrivateKey::generate().value()));
  EXPECT_TRUE(lets_in(later).ok()) << "another key's word counts for nothing";
  aggregator_comes_with(said_before(who, *key_));
  EXPECT_FALSE(lets_in(later).ok());
  EXPECT_FALSE(lets_in(known_).ok());
  EXPECT_FALSE(lets_in(site_).ok());
  EXPECT_TRUE(journal_->node(site_.node).value()->revoked_at);
  EXPECT_GT(registry_->refused().number, number) << "the other aggregators hear of it";
}

TEST_F(RegistryTest, WithoutARestoreNothingIsAdopted) {
  identity::PeerIdentity known = enrol(Role::kSite, "hospital-b", "eu", "5b");
  open();
  known.issued = test_.get().clock.wall_now();
  known.not_after = known.issued + kHour;
  lease(known);
  open();
  known.key = identity::PublicKey::of(identity::PrivateKey::generate().value());
  known.serial_hex = "6c";
  known.issued += kHour;
  EXPECT_FALSE(deny_->check(known).ok());
}

TEST_F(RegistryTest, ALeaseSaysForHowLongCertificatesAreIssued) {
  EXPECT_EQ(lease(site_).certificate_s(), 0U) << "one that renews none";
  registry_->with_renewal([] { return Registry::RenewalTerms{std::chrono::hours(24), 3}; });
  EXPECT_EQ(lease(site_).certificate_s(), 86'400U);
  EXPECT_EQ(lease(site_).trust(), 3U);
}

}  // namespace
}  // namespace fluvial::coordinator

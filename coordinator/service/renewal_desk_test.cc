// Who gets a certificate for longer, and which.
#include "coordinator/service/renewal_desk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/digest/sha256.h"
#include "core/identity/csr.h"
#include "core/store/audit_log.h"
#include "core/tree/test_runtime.h"
#include "core/wire/mapping.h"

namespace fluvial::coordinator {
namespace {

using identity::Certificate;
using identity::PrivateKey;
using std::chrono::days;
using std::chrono::hours;
using testing::HasSubstr;

// The machine's clocks, ahead of their time.
class LaterClock final : public Clock {
 public:
  explicit LaterClock(std::chrono::hours by) : by_(by) {}
  TimePoint now() const override { return machines_.now() + by_; }
  WallTime wall_now() const override { return machines_.wall_now() + by_; }

 private:
  const SystemClock machines_;
  const std::chrono::hours by_;
};

class RenewalDeskTest : public testing::Test {
 protected:
  RenewalDeskTest() {
    EXPECT_TRUE(registry_.load().ok());
    open({.validity = hours(24)});
  }
  void open(RenewalOptions options) { desk_.emplace(test_.get(), registry_, *journal_, live_, options); }

  // The test's runtime, by another clock.
  tree::Runtime at(const Clock& clock) {
    const tree::Runtime& own = test_.get();
    return {own.io,      own.strand, own.pool,    own.pool_threads, clock,         own.files,         own.log,
            own.metrics, own.hooks,  own.session, own.backoff,      own.strangers, own.administration};
  }

  WallTime now() const { return SystemClock().wall_now(); }
  std::string csr_of(const PrivateKey& key) const {
    return std::string(as_text(identity::make_csr(key).value().span()));
  }
  // A member's certificate, made `ago` before now and valid for `validity`.
  Certificate enrol(const PrivateKey& key, std::chrono::seconds ago, std::chrono::seconds validity,
                    const std::string& name = "a") {
    const WallTime when = now() - ago;
    const NodeId node = journal_->reserve_node_id(Role::kSite, name).value();
    const std::string csr = csr_of(key);
    const Certificate issued =
        authority_->issue(as_byte_span(csr), {{Role::kSite, node, name}, validity, {}, {}}, when).value();
    store::TokenRow token;
    token.id = issued.serial_hex();
    token.secret_hash = sha256(as_byte_span(token.id));
    token.name = name;
    token.expires_at = when + hours(1);
    EXPECT_TRUE(journal_->add_token(token).ok());
    store::NodeRow row;
    row.id = node;
    row.name = name;
    row.certificate_serial = issued.serial_hex();
    row.enrolled_at = when;
    const Buffer der = issued.public_key().der();
    EXPECT_TRUE(
        journal_->redeem_token(token.secret_hash, row, when, {der.span(), issued.not_after(), authority_->key_id()})
            .ok());
    return issued;
  }
  v1::RenewReply renew(const Certificate& shown, const PrivateKey& key) {
    v1::RenewRequest request;
    request.set_csr_der(csr_of(key));
    return test_.run(desk_->renew(identity::identity_of(shown).value(), request, "192.0.2.7:1"));
  }
  Result<v1::RenewReply> renew_ended(const Certificate& shown, const PrivateKey& key) {
    v1::RenewRequest request;
    request.set_csr_der(csr_of(key));
    request.set_certificate_pem(shown.pem());
    return test_.run(desk_->renew_ended(request, "192.0.2.7:1"));
  }
  static Certificate certificate_in(const v1::RenewReply& reply) {
    EXPECT_EQ(reply.code(), 0U) << reply.message();
    return Certificate::chain_from_pem(reply.certificate_pem()).value().front();
  }
  double count(const char* result) {
    return test_.get().metrics.counter("renewals_total", {{"result", result}}).value();
  }

  tree::TestRuntime test_{Role::kCoordinator};
  std::shared_ptr<const identity::CertificateAuthority> authority_ =
      std::make_shared<const identity::CertificateAuthority>(
          identity::CertificateAuthority::create_in_memory("federation", SystemClock().wall_now() - days(400)).value());
  identity::LiveAuthority live_{authority_};
  std::unique_ptr<store::CoordinatorJournal> journal_ =
      store::CoordinatorJournal::open(test_.files(), "/journal.sqlite").value();
  Registry registry_{test_.get(), *journal_, std::make_shared<identity::DenyList>(),
                     FailoverSettings{hours(1), hours(1), hours(1)}, PrivateKey::generate().value()};
  std::optional<RenewalDesk> desk_;
  PrivateKey key_ = PrivateKey::generate().value();
};

TEST_F(RenewalDeskTest, TheSameKeyForLonger) {
  const Certificate before = enrol(key_, hours(13), hours(24));
  const Certificate next = certificate_in(renew(before, key_));
  EXPECT_EQ(next.public_key(), before.public_key());
  EXPECT_NE(next.serial_hex(), before.serial_hex());
  EXPECT_GT(next.not_after(), now() + hours(23));
  const store::CertificateRow row = store::CertificateBook(*journal_).find(next.serial_hex()).value().value();
  EXPECT_EQ(row.renews, before.serial_hex());
  EXPECT_EQ(row.ends_at, next.not_after());
  EXPECT_EQ(journal_->node_named("a").value()->certificate_serial, next.serial_hex());
  EXPECT_EQ(count("granted"), 1);
}

TEST_F(RenewalDeskTest, AnAnswerThatWasLostIsGivenAgain) {
  const Certificate before = enrol(key_, hours(13), hours(24));
  const Certificate first = certificate_in(renew(before, key_));
  const Certificate again = certificate_in(renew(before, key_));
  EXPECT_EQ(again.serial_hex(), first.serial_hex());
  EXPECT_EQ(again.not_before(), first.not_before());
  EXPECT_EQ(again.not_after(), first.not_after());
  EXPECT_EQ(count("again"), 1);
  EXPECT_EQ(count("granted"), 1);
  const Certificate next = certificate_in(renew(first, key_));
  EXPECT_NE(next.serial_hex(), first.serial_hex()) << "its holder asks for the one after";
}

TEST_F(RenewalDeskTest, WhatIsWornOutIsNotGivenAgain) {
  const Certificate before = enrol(key_, hours(1), hours(24));
  const Certificate first = certificate_in(renew(before, key_));
  const LaterClock later(hours(11));
  tree::Runtime runtime = at(later);
  desk_.emplace(runtime, registry_, *journal_, live_, RenewalOptions{.validity = hours(24)});
  EXPECT_EQ(certificate_in(renew(before, key_)).serial_hex(), first.serial_hex());
  const LaterClock too_late(hours(13));  // half of its life and more is gone
  tree::Runtime last = at(too_late);
  desk_.emplace(last, registry_, *journal_, live_, RenewalOptions{.validity = hours(24)});
  EXPECT_NE(certificate_in(renew(before, key_)).serial_hex(), first.serial_hex());
  desk_.reset();
}

TEST_F(RenewalDeskTest, OnlyForTheKeyThatTheMemberHas) {
  const Certificate before = enrol(key_, hours(13), hours(24));
  const PrivateKey other = PrivateKey::generate().value();
  EXPECT_THAT(renew(before, other).message(), HasSubstr("a renewal keeps the key"));
  enrol(other, hours(1), hours(24));
  EXPECT_THAT(renew(before, key_).message(), HasSubstr("has enrolled anew since, with another key"));
  EXPECT_EQ(count("refused"), 2);
}

TEST_F(RenewalDeskTest, ARevokedMemberGetsNone) {
  const Certificate before = enrol(key_, hours(13), hours(24));
  ASSERT_TRUE(journal_->revoke(identity::identity_of(before)->node, now()).ok());
  EXPECT_THAT(renew(before, key_).message(), HasSubstr("was revoked at"));
  EXPECT_THAT(renew_ended(before, key_).error().message, HasSubstr("was revoked at"));
}

TEST_F(RenewalDeskTest, WhatTheHistoryBeforeARestoreRefusedIsNotRenewed) {
  const Certificate before = enrol(key_, hours(13), hours(24));
  store::Refusals lost;
  lost.serials = {before.serial_hex()};
  ASSERT_TRUE(store::CertificateBook(*journal_).take_over(lost, now(), now()).value());
  const auto refused = renew_ended(before, key_);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kUnauthenticated);
  EXPECT_THAT(refused.error().message, HasSubstr("after the backup"));
}

TEST_F(RenewalDeskTest, AWeekendOffNeedsNoPersonAndAYearDoes) {
  const Certificate weekend = enrol(key_, days(3), hours(24));
  EXPECT_GT(certificate_in(renew_ended(weekend, key_).value()).not_after(), now() + hours(23));
  const PrivateKey old = PrivateKey::generate().value();
  const Certificate year = enrol(old, days(365), hours(24));
  const auto refused = renew_ended(year, old);
  EXPECT_EQ(refused.error().code, Code::kUnauthenticated) << "and charged to its address";
  EXPECT_THAT(refused.error().message, HasSubstr("too long ago to be renewed"));
  open({.validity = hours(24), .ended_max = std::chrono::seconds(0)});
  EXPECT_EQ(renew_ended(weekend, key_).error().code, Code::kUnauthenticated);
}

TEST_F(RenewalDeskTest, ACertificateOfAnotherAuthorityIsNobodys) {
  const Certificate own = enrol(key_, days(3), hours(24));
  const auto foreign = identity::CertificateAuthority::create_in_memory("federation", now() - days(400)).value();
  const std::string csr = csr_of(key_);
  const identity::Grant grant{{Role::kSite, identity::identity_of(own)->node, "a"}, hours(24), {}, {}};
  const Certificate forged = foreign.issue(as_byte_span(csr), grant, now() - days(3)).value();
  EXPECT_EQ(renew_ended(forged, key_).error().code, Code::kUnauthenticated);
}

TEST_F(RenewalDeskTest, RenewalsHaveABudgetOfTheirOwn) {
  open({.validity = hours(24), .per_minute_max = 1});
  const Certificate before = enrol(key_, hours(13), hours(24));
  certificate_in(renew(before, key_));
  const v1::RenewReply next = renew(before, key_);
  EXPECT_EQ(next.code(), wire::code_to_proto(Code::kResourceExhausted));
  EXPECT_THAT(next.message(), HasSubstr("too many renewals"));
  EXPECT_EQ(count("too_many"), 1);
}

TEST_F(RenewalDeskTest, OneMemberThatAsksWithoutEndLeavesTheOthersTheirs) {
  Certificate held = enrol(key_, hours(13), hours(24));
  const PrivateKey other = PrivateKey::generate().value();
  const Certificate others = enrol(other, hours(13), hours(24), "b");
  for (int i = 0; i < 10; ++i) held = certificate_in(renew(held, key_));
  for (int i = 0; i < 3; ++i) {
    const v1::RenewReply refused = renew(held, key_);
    EXPECT_EQ(refused.code(), wire::code_to_proto(Code::kResourceExhausted));
    EXPECT_THAT(refused.message(), HasSubstr("too often"));
  }
  const store::CertificateRow last = store::CertificateBook(*journal_).find(held.serial_hex()).value().value();
  EXPECT_FALSE(last.used_at) << "nothing was written for what was refused";
  EXPECT_GT(certificate_in(renew(others, other)).not_after(), now() + hours(23));
  EXPECT_EQ(count("too_many"), 3);
}

// Members would not take it until the clock is there again.
TEST_F(RenewalDeskTest, WhatWasIssuedBeforeTheClockWasSetBackIsNotGivenAgain) {
  open({.validity = days(90)});
  const Certificate before = enrol(key_, days(46), days(90));
  const identity::PeerIdentity holder = identity::identity_of(before).value();
  const Buffer der = holder.key.der();
  const std::string csr = csr_of(key_);
  const auto serial_after = [&csr](const std::string& serial) {
    return to_hex(identity::serial_of(sha256(as_byte_span("fluvial renewal 1" + serial)), as_byte_span(csr)).value());
  };
  const std::string ahead = serial_after(before.serial_hex());
  const Digest authority = authority_->key_id();
  ASSERT_TRUE(store::CertificateBook(*journal_)
                  .renewed({ahead, holder.node, der.span(), now() + days(30), now() + days(120), before.serial_hex(),
                            authority},
                           now())
                  .ok());
  const Certificate next = certificate_in(renew(before, key_));
  EXPECT_EQ(next.serial_hex(), serial_after(ahead));
  EXPECT_LT(next.not_before(), now());
}

TEST_F(RenewalDeskTest, AMemberWithSixMonthsLeftGetsWhatIsIssuedNow) {
  const Certificate before = enrol(key_, days(10), days(90));
  EXPECT_LE(certificate_in(renew(before, key_)).not_after(), now() + hours(24));
}

}  // namespace
}  // namespace fluvial::coordinator

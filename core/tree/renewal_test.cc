// Certificates that change while sessions go on: a member's own, and those of its peers.
#include "core/tree/renewal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/identity/csr.h"
#include "core/net/deadline.h"
#include "core/tree/test_support.h"

namespace fluvial::tree {
namespace {

using identity::Certificate;
using identity::Credentials;
using identity::PrivateKey;
using testing::HasSubstr;

constexpr NodeId kNode{7};

class CertificatesTest : public HubTest {
 protected:
  // Parent and child at once, as an aggregator is.
  explicit CertificatesTest(Duration past_certificate_max = std::chrono::hours(1))
      : HubTest(wire::Protocols{}, past_certificate_max, Role::kAggregator) {}

  Credentials credentials_for(const PrivateKey& key, const identity::Member& member,
                              std::chrono::seconds validity) const {
    const Buffer csr = identity::make_csr(key).value();
    const WallTime now = SystemClock().wall_now();
    Certificate certificate = pki_.authority().issue(csr.span(), {member, validity, {}, {}}, now).value();
    return {key, {std::move(certificate)}, pki_.authority().authorities()};
  }
  Credentials mine(std::chrono::seconds validity) const {
    return credentials_for(key_, {Role::kSite, kNode, "a"}, validity);
  }
  net::Awaitable<std::shared_ptr<net::Session>> connect_with(const Credentials& credentials, bool joins = true) {
    auto session =
        co_await net::connect(process_.runtime().strand, "127.0.0.1", port_,
                              identity::TlsContext::member_client(credentials).value(), process_.runtime().session);
    EXPECT_TRUE(session.ok());
    v1::Envelope greeting = hello(joins ? 1 : 0, 1);
    greeting.mutable_hello()->set_takes_renewed(true);
    (*session)->post({std::move(greeting), {}});
    const Result<net::Frame> welcome = co_await receive(*session);
    EXPECT_TRUE(welcome.ok() && welcome->header.welcome().takes_renewed());
    co_return *session;
  }
  static void say_renewed(const std::shared_ptr<net::Session>& session, const Credentials& credentials) {
    v1::Envelope message;
    message.mutable_renewed()->set_certificate_pem(Certificate::pem_of(credentials.chain));
    session->post({std::move(message), {}});
  }
  static v1::RenewReply reply_with(const Credentials& credentials, std::uint64_t trust = 0) {
    v1::RenewReply reply;
    reply.set_certificate_pem(Certificate::pem_of(credentials.chain));
    reply.set_ca_pem(Certificate::pem_of(credentials.authorities));
    reply.set_trust(trust);
    return reply;
  }
  Renewal::Parts parts(const Credentials& credentials) {
    live_ = identity::live(identity::TlsContext::member_client(credentials).value());
    return {.credentials = credentials,
            .folder = folder_.path() + "/identity",
            .coordinator = {"127.0.0.1", port_},
            .enrolment = {"127.0.0.1", port_},
            .dial = dial_over_tls(process_.runtime(), live_),
            .client = live_};
  }
  double renewals(const char* result) {
    return process_.runtime().metrics.counter("certificate_renewals_total", {{"result", result}}).value();
  }

  PrivateKey key_ = PrivateKey::generate().value();
  std::shared_ptr<identity::LiveTls> live_;
};

TEST_F(CertificatesTest, ASessionGoesOnWithTheCertificateThatItsChildHasSince) {
  run([this]() -> net::Awaitable<void> {
    const auto session = co_await connect_with(mine(std::chrono::hours(1)));
    const Credentials next = mine(std::chrono::hours(5));
    say_renewed(session, next);
    session->post({begin(7, 99), {}});
    co_await next_receipt(session);  // after it
    const Child& child = hub_->children().at(kNode);
    EXPECT_EQ(child.peer().not_after, next.chain.front().not_after());
    EXPECT_EQ(child.peer().serial_hex, next.chain.front().serial_hex());
    EXPECT_EQ(owner_.joined.size(), 1U);
  });
}

TEST_F(CertificatesTest, ARenewedCertificateIsOfTheSameMemberAndKey) {
  run([this]() -> net::Awaitable<void> {
    const PrivateKey other = PrivateKey::generate().value();
    const std::vector<Credentials> wrong = {
        credentials_for(other, {Role::kSite, kNode, "a"}, std::chrono::hours(5)),
        credentials_for(key_, {Role::kSite, NodeId(8), "a"}, std::chrono::hours(5)),
        credentials_for(key_, {Role::kSite, kNode, "b"}, std::chrono::hours(5)),
        credentials_for(key_, {Role::kAggregator, kNode, "a"}, std::chrono::hours(5)),
    };
    for (const Credentials& credentials : wrong) {
      const auto session = co_await connect_with(mine(std::chrono::hours(1)));
      say_renewed(session, credentials);
      EXPECT_THAT((co_await end_of(session)).message, HasSubstr("or for another key than its session's"));
    }
    const auto session = co_await connect_with(mine(std::chrono::hours(1)));
    say_renewed(session, pki_.foreign_credentials(Role::kSite, kNode, "a"));
    EXPECT_EQ((co_await end_of(session)).code, Code::kUnauthenticated);
  });
}

TEST_F(CertificatesTest, ChildrenThatTakeItAreToldOfTheirParentsCertificate) {
  run([this]() -> net::Awaitable<void> {
    const auto takes = co_await connect_with(mine(std::chrono::hours(1)));
    const auto older = co_await connect(Role::kSite, 8);
    hub_->tell_renewed("a chain");
    const Result<net::Frame> told = co_await receive(takes);
    EXPECT_EQ(told.value().header.renewed().certificate_pem(), "a chain");
    older->post({begin(8, 99), {}});
    co_await next_receipt(older);  // and nothing before it
    const auto late =
        co_await connect_with(credentials_for(key_, {Role::kSite, NodeId(9), "c"}, std::chrono::hours(1)));
    EXPECT_TRUE((co_await receive(late)).value().header.has_renewed()) << "its handshake may have been before";
  });
}

class BriefCertificatesTest : public CertificatesTest {
 protected:
  BriefCertificatesTest() : CertificatesTest(std::chrono::milliseconds(200)) {}
};

TEST_F(BriefCertificatesTest, ASessionEndsSoonAfterTheCertificateThatWasShownLast) {
  run([this]() -> net::Awaitable<void> {
    const auto silent = co_await connect_with(mine(std::chrono::seconds(2)));
    const auto renews =
        co_await connect_with(credentials_for(key_, {Role::kSite, NodeId(8), "b"}, std::chrono::seconds(2)));
    say_renewed(renews, credentials_for(key_, {Role::kSite, NodeId(8), "b"}, std::chrono::hours(1)));
    EXPECT_THAT((co_await end_of(silent)).message, HasSubstr("the certificate has ended"));
    EXPECT_TRUE(renews->is_open());
    EXPECT_EQ(process_.runtime().metrics.counter("sessions_refused_total", {{"reason", "certificate_ended"}}).value(),
              1);
  });
}

TEST_F(CertificatesTest, AMemberRenewsWhatLivesLongerThanWhatIsIssuedNow) {
  const Credentials before = mine(std::chrono::days(90));
  ASSERT_TRUE(identity::save_credentials(before, folder_.path() + "/identity").ok());
  const Credentials next = mine(std::chrono::hours(24));
  int asked = 0;
  owner_.on_renew = [&](const identity::PeerIdentity& peer, const v1::RenewRequest& request) {
    ++asked;
    EXPECT_EQ(peer.serial_hex, before.chain.front().serial_hex());
    EXPECT_EQ(identity::key_of_csr(as_byte_span(request.csr_der())).value().id(), identity::PublicKey::of(key_).id());
    return reply_with(next, 3);
  };
  Renewal renewal(process_.runtime(), parts(before));
  const auto context = live_->current();
  net::AsyncSignal done(process_.runtime().strand);
  std::string told;
  renewal.tell(
      [&](const std::string& chain_pem, WallTime ends) {
        told = chain_pem;
        EXPECT_EQ(ends, next.chain.front().not_after());
        done.notify_all();
      },
      [] {});
  process_.spawn("renewal", renewal.run());
  run([&]() -> net::Awaitable<void> {
    renewal.told(Duration(0), 0);  // a coordinator that renews none is not asked
    renewal.told(std::chrono::hours(24), 0);
    while (told.empty()) co_await done.wait();
    renewal.stop();
  });
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(told, Certificate::pem_of(next.chain));
  EXPECT_NE(live_->current(), context);
  EXPECT_EQ(renewals("ok"), 1);
  const Credentials saved = identity::load_credentials(folder_.path() + "/identity").value();
  EXPECT_EQ(saved.chain.front().serial_hex(), next.chain.front().serial_hex());
  EXPECT_EQ(saved.trust, 3U);
  EXPECT_EQ(renewal.trust(), 3U);
}

// As it is after a rollover that did not wait for this member.
TEST_F(CertificatesTest, ACoordinatorOfAnotherAuthorityIsAReasonToAskOnTheEnrolmentPortAtOnce) {
  const auto other = identity::CertificateAuthority::create_in_memory("other", SystemClock().wall_now()).value();
  Credentials missed = mine(std::chrono::hours(24));
  missed.authorities = other.authorities();
  int asked = 0;
  net::AsyncSignal done(process_.runtime().strand);
  Renewal::Parts given = parts(missed);
  const Dial dial = given.dial;
  given.dial_enrolment = [&]() -> net::Awaitable<Result<std::shared_ptr<net::Session>>> {
    ++asked;
    done.notify_all();
    co_return Error{Code::kUnavailable, "nobody is there"};
  };
  Renewal renewal(process_.runtime(), std::move(given));
  process_.spawn("renewal", renewal.run());
  run([&]() -> net::Awaitable<void> {
    const Dial watched = renewal.watching(dial);
    EXPECT_EQ((co_await watched({"127.0.0.1", port_}, Role::kCoordinator)).error().code, Code::kUnauthenticated);
    while (asked == 0 && (co_await net::with_deadline(done.wait(), std::chrono::seconds(30))).ok()) {
    }
    renewal.stop();
  });
  EXPECT_EQ(asked, 1);
}

TEST_F(CertificatesTest, AnAnswerThatDoesNotFitIsNotTaken) {
  const Credentials before = mine(std::chrono::hours(1));
  const WallTime now = SystemClock().wall_now();
  const auto why = [&](const v1::RenewReply& reply) {
    const auto taken = accept_renewal(reply, before, now);
    return taken.ok() ? "" : taken.error().message;
  };
  EXPECT_EQ(why(reply_with(mine(std::chrono::hours(2)))), "");
  const PrivateKey other = PrivateKey::generate().value();
  EXPECT_NE(why(reply_with(credentials_for(other, {Role::kSite, kNode, "a"}, std::chrono::hours(2)))), "");
  EXPECT_NE(why(reply_with(credentials_for(key_, {Role::kSite, kNode, "b"}, std::chrono::hours(2)))), "");
  EXPECT_NE(why(reply_with(credentials_for(key_, {Role::kSite, NodeId(8), "a"}, std::chrono::hours(2)))), "");
  v1::RenewReply foreign = reply_with(mine(std::chrono::hours(2)));
  foreign.set_ca_pem(identity::CertificateAuthority::create_in_memory("other", now).value().certificate().pem());
  EXPECT_NE(why(foreign), "") << "its authority is none of those that come with it";
  EXPECT_NE(why(reply_with(pki_.expired_credentials(Role::kSite, kNode, "a"))), "");
  v1::RenewReply refused;
  refused.set_code(wire::code_to_proto(Code::kUnauthenticated));
  refused.set_message("the member was revoked");
  EXPECT_THAT(why(refused), HasSubstr("the member was revoked"));
}

TEST_F(CertificatesTest, WhereACertificateThatHasEndedIsRenewed) {
  const net::HostPort coordinator{"root.example.org", 7400};
  const std::string folder = folder_.path();
  EXPECT_EQ(enrol_address("", folder, coordinator), (net::HostPort{"root.example.org", kEnrolPort}));
  const std::string line = "enrol.example.org:9001\n";
  const ByteSpan note[] = {as_byte_span(line)};
  ASSERT_TRUE(store::write_file_atomically(files_, folder + "/" + kEnrolAddressFile, note).ok());
  EXPECT_EQ(enrol_address("", folder, coordinator), (net::HostPort{"enrol.example.org", 9001}));
  EXPECT_EQ(enrol_address("other:1", folder, coordinator), (net::HostPort{"other", 1}));
  run([]() -> net::Awaitable<void> { co_return; });
}

}  // namespace
}  // namespace fluvial::tree

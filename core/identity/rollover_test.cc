// Handshakes while one authority follows another, over sockets of the kernel: what members and newcomers are shown.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "core/identity/authority.h"
#include "core/identity/csr.h"
#include "core/identity/errors.h"
#include "core/identity/live_tls.h"
#include "core/identity/test_support.h"
#include "core/identity/testing.h"

namespace fluvial::identity {
namespace {

using ::testing::HasSubstr;
using Context = std::shared_ptr<const TlsContext>;

// Both ends in memory. The client's error; empty when they met.
std::string meet(const Context& server, const Context& client) {
  const SslPtr ends[] = {client->new_session().value(), server->new_session().value()};
  BIO* one = nullptr;
  BIO* other = nullptr;
  EXPECT_EQ(BIO_new_bio_pair(&one, 0, &other, 0), 1);
  SSL_set_bio(ends[0].get(), one, one);
  SSL_set_bio(ends[1].get(), other, other);
  std::string failed[2];
  for (int i = 0; i < 20; ++i) {
    const int which = i % 2;
    SSL* const ssl = ends[which].get();
    if (!failed[which].empty()) continue;
    ERR_clear_error();
    char byte = 0;
    const int result = SSL_is_init_finished(ssl) == 1 ? SSL_read(ssl, &byte, 1) : SSL_do_handshake(ssl);
    const int wanted = SSL_get_error(ssl, result);
    if (result == 1 || wanted == SSL_ERROR_WANT_READ || wanted == SSL_ERROR_WANT_WRITE) continue;
    failed[which] = handshake_error(ssl, "handshake").message;
  }
  if (failed[0].empty() && failed[1].empty()) {
    EXPECT_EQ(SSL_is_init_finished(ends[0].get()), 1);
    EXPECT_EQ(SSL_is_init_finished(ends[1].get()), 1);
  }
  return failed[0].empty() ? failed[1] : failed[0];
}

class Rollover : public ::testing::Test {
 protected:
  Credentials by(const CertificateAuthority& authority, Role role, std::vector<Certificate> trusted) const {
    auto made = make_key_and_csr().value();
    const NodeId node(role == Role::kCoordinator ? 1 : 7);
    const Grant grant{{role, node, role == Role::kCoordinator ? "root" : "hospital-a"}, std::chrono::hours(1)};
    return {std::move(made.key), authority.issue_chain(made.csr_der.span(), grant, wall_now()).value(),
            std::move(trusted)};
  }
  Context server(const CertificateAuthority& authority, std::vector<Certificate> trusted) const {
    return TlsContext::member_server(by(authority, Role::kCoordinator, std::move(trusted))).value();
  }
  Context client(const CertificateAuthority& authority, std::vector<Certificate> trusted) const {
    return TlsContext::member_client(by(authority, Role::kSite, std::move(trusted))).value();
  }

  const CertificateAuthority old_ = CertificateAuthority::create_in_memory("test", wall_now()).value();
  const CertificateAuthority next_ = CertificateAuthority::of(make_test_authority(make_test_root("company")));
  const std::vector<Certificate> both_ = {old_.certificate(), next_.chain().back()};
  const std::vector<Certificate> only_next_ = {next_.chain().back()};
};

TEST_F(Rollover, MembersThatTrustBothMeetWhicheverOfThemIssued) {
  for (const CertificateAuthority* coordinator : {&old_, &next_}) {
    for (const CertificateAuthority* member : {&old_, &next_}) {
      EXPECT_EQ(meet(server(*coordinator, both_), client(*member, both_)), "");
    }
  }
}

TEST_F(Rollover, AfterItsEndACertificateOfTheAuthorityBeforeIsRefused) {
  EXPECT_EQ(meet(server(next_, only_next_), client(next_, only_next_)), "");
  EXPECT_THAT(meet(server(next_, only_next_), client(old_, both_)), HasSubstr("unknown CA"));
  EXPECT_NE(meet(server(old_, both_), client(next_, only_next_)), "");
}

TEST_F(Rollover, TheEnrolmentPortIsKnownByEitherPinAndShowsTheOneBeforeToWhoNamesNone) {
  Credentials first = by(old_, Role::kCoordinator, {old_.certificate()});
  Credentials second = by(next_, Role::kCoordinator, {next_.chain().back()});
  const Context port = TlsContext::enrol_server(std::vector<Credentials>{first, second}).value();
  EXPECT_EQ(meet(port, TlsContext::enrol_client(old_.pin()).value()), "");
  EXPECT_EQ(meet(port, TlsContext::enrol_client(next_.pin()).value()), "");
  EXPECT_EQ(meet(port, TlsContext::enrol_client({old_.pin(), next_.pin()}).value()), "");
  const auto foreign = CertificateAuthority::create_in_memory("test", wall_now()).value();
  EXPECT_THAT(meet(port, TlsContext::enrol_client(foreign.pin()).value()), HasSubstr("wrong authority"));

  // A client of an earlier version names no pin in its offer.
  Context earlier = TlsContext::enrol_client(old_.pin()).value();
  const std::string offer = std::string(1, static_cast<char>(kEnrolAlpn.size())) + std::string(kEnrolAlpn);
  SSL_CTX_set_alpn_protos(earlier->native(), reinterpret_cast<const unsigned char*>(offer.data()),
                          static_cast<unsigned int>(offer.size()));
  EXPECT_EQ(meet(port, earlier), "");

  // Before and after, one is there.
  EXPECT_EQ(meet(TlsContext::enrol_server(second).value(), TlsContext::enrol_client(next_.pin()).value()), "");
  EXPECT_THAT(meet(TlsContext::enrol_server(second).value(), TlsContext::enrol_client(old_.pin()).value()),
              HasSubstr("wrong authority"));
  EXPECT_FALSE(TlsContext::enrol_server(std::vector<Credentials>{}).ok());
  EXPECT_FALSE(TlsContext::enrol_client(std::vector<std::string>{}).ok());
}

TEST_F(Rollover, ALiveContextIsTheNewOneForNewSessionsAndTheOldOneForWhoeverHasIt) {
  const auto held = live(server(old_, both_));
  const Context before = held->current();
  held->replace(server(next_, only_next_));
  EXPECT_EQ(meet(before, client(old_, both_)), "");
  EXPECT_NE(meet(held->current(), client(old_, both_)), "");
}

}  // namespace
}  // namespace fluvial::identity

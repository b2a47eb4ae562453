#include "core/identity/tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <array>
#include <optional>
#include <thread>

#include "core/identity/deny.h"
#include "core/identity/errors.h"
#include "core/identity/openssl_internal.h"
#include "core/identity/testing.h"

namespace fluvial::identity {
namespace {

using ::testing::HasSubstr;

enum class Step { kWaiting, kDone, kFailed };

// One end of a connection that exists in memory.
struct End {
  SslPtr ssl;
  Step step = Step::kWaiting;
  std::optional<Error> error;

  explicit End(const TlsContext& context) : ssl(context.new_session().value()) {}

  // One attempt at the handshake, and after it at a read, in which a client learns that its certificate was refused.
  void advance() {
    if (step == Step::kFailed) return;
    ERR_clear_error();
    const bool reading = step == Step::kDone;
    char byte = 0;
    const int result = reading ? SSL_read(ssl.get(), &byte, 1) : SSL_do_handshake(ssl.get());
    if (result == 1) {
      step = Step::kDone;
      return;
    }
    const int wanted = SSL_get_error(ssl.get(), result);
    if (wanted == SSL_ERROR_WANT_READ || wanted == SSL_ERROR_WANT_WRITE) return;
    step = Step::kFailed;
    error = handshake_error(ssl.get(), "handshake");
  }
};

struct Handshake {
  End server;
  End client;

  Handshake(const std::shared_ptr<const TlsContext>& server_context,
            const std::shared_ptr<const TlsContext>& client_context)
      : server(*server_context), client(*client_context) {
    BIO* one = nullptr;
    BIO* other = nullptr;
    EXPECT_EQ(BIO_new_bio_pair(&one, 0, &other, 0), 1);
    SSL_set_bio(server.ssl.get(), one, one);
    SSL_set_bio(client.ssl.get(), other, other);
    for (int i = 0; i < 10; ++i) {
      client.advance();
      server.advance();
    }
  }

  bool ok() const { return server.step == Step::kDone && client.step == Step::kDone; }
  std::string server_error() const { return server.error ? server.error->message : "no error"; }
  std::string client_error() const { return client.error ? client.error->message : "no error"; }
};

class Tls : public ::testing::Test {
 protected:
  std::shared_ptr<const TlsContext> root() const { return pki.member_server(Role::kCoordinator, NodeId(1), "root"); }
  std::shared_ptr<const TlsContext> site() const { return pki.member_client(Role::kSite, NodeId(7), "hospital-a"); }
  const TestPki pki;
};

TEST_F(Tls, MembersMeetAndKnowEachOther) {
  Handshake met(root(), site());
  ASSERT_TRUE(met.ok()) << met.server_error() << " / " << met.client_error();
  const PeerIdentity client = peer_identity(met.server.ssl.get()).value();
  EXPECT_EQ(client.role, Role::kSite);
  EXPECT_EQ(client.node, NodeId(7));
  EXPECT_EQ(client.name, "hospital-a");
  const PeerIdentity server = peer_identity(met.client.ssl.get()).value();
  EXPECT_TRUE(may_speak_as(server, Role::kCoordinator).ok());
  EXPECT_EQ(server.node, NodeId(1));
  EXPECT_STREQ(SSL_get_version(met.client.ssl.get()), "TLSv1.3");
  EXPECT_STREQ(SSL_get_cipher_name(met.client.ssl.get()), "TLS_AES_128_GCM_SHA256");
  EXPECT_EQ(SSL_session_reused(met.client.ssl.get()), 0);
  EXPECT_EQ(SSL_write(met.client.ssl.get(), "hi", 2), 2);
  std::array<char, 8> read = {};
  EXPECT_EQ(SSL_read(met.server.ssl.get(), read.data(), read.size()), 2);
}

TEST_F(Tls, AnAggregatorIsClientAndServer) {
  EXPECT_TRUE(Handshake(root(), pki.member_client(Role::kAggregator, NodeId(3), "eu")).ok());
  EXPECT_TRUE(Handshake(pki.member_server(Role::kAggregator, NodeId(3), "eu"), site()).ok());
}

TEST_F(Tls, NoIdentityBeforeTheEnd) {
  const SslPtr fresh = root()->new_session().value();
  EXPECT_EQ(peer_identity(fresh.get()).error().code, Code::kUnauthenticated);
}

TEST_F(Tls, RefusesAClientWithoutACertificate) {
  const Handshake refused(root(), pki.anonymous_client());
  EXPECT_EQ(refused.server.step, Step::kFailed);
  EXPECT_EQ(refused.server.error->code, Code::kUnauthenticated);
  EXPECT_THAT(refused.server_error(), HasSubstr("peer did not return a certificate"));
  EXPECT_THAT(refused.client_error(), HasSubstr("the peer refused: certificate required"));
}

TEST_F(Tls, RefusesExpiredCertificatesOnBothSides) {
  const Handshake client(root(), pki.expired_client(Role::kSite, NodeId(7), "hospital-a"));
  EXPECT_THAT(client.server_error(), HasSubstr("site 7 (hospital-a) is refused: certificate has expired"));
  EXPECT_THAT(client.client_error(), HasSubstr("the peer refused: certificate expired"));
  const Handshake server(pki.expired_server(Role::kCoordinator, NodeId(1), "root"), site());
  EXPECT_THAT(server.client_error(), HasSubstr("certificate has expired"));
  EXPECT_EQ(server.server.step, Step::kFailed);
}

TEST_F(Tls, RefusesCertificatesOfAnotherAuthority) {
  const Handshake client(root(), pki.foreign_client(Role::kSite, NodeId(7), "hospital-a"));
  EXPECT_THAT(client.server_error(), HasSubstr("unable to get local issuer certificate"));
  EXPECT_THAT(client.client_error(), HasSubstr("the peer refused: unknown CA"));
  const Handshake server(pki.foreign_server(Role::kCoordinator, NodeId(1), "root"), site());
  EXPECT_EQ(server.client.step, Step::kFailed);
  EXPECT_EQ(server.server.step, Step::kFailed);
}

TEST_F(Tls, RefusesOtherProtocols) {
  const Handshake none(root(), pki.no_alpn_client());
  EXPECT_THAT(none.server_error(), HasSubstr("offers no application protocol; fluvial/1 is required"));
  EXPECT_THAT(none.client_error(), HasSubstr("the peer refused: no application protocol"));
  const Handshake other(root(), pki.other_alpn_client());
  EXPECT_THAT(other.server_error(), HasSubstr("does not offer the application protocol fluvial/1"));
  EXPECT_THAT(other.client_error(), HasSubstr("the peer refused: no application protocol"));
  const Handshake enrolling(root(), pki.enrol_client());
  EXPECT_THAT(enrolling.client_error(), HasSubstr("the peer refused: no application protocol"));
  const Handshake early(pki.enrol_server(), site());
  EXPECT_THAT(early.server_error(), HasSubstr("does not offer the application protocol fluvial-enrol/1"));
}

TEST_F(Tls, RefusesTls12) {
  const Handshake refused(root(), pki.tls12_client());
  EXPECT_THAT(refused.server_error(), HasSubstr("unsupported protocol"));
  EXPECT_THAT(refused.client_error(), HasSubstr("the peer refused: protocol version"));
}

// The server's error for a connection that sends these bytes and closes.
Error error_after(const TlsContext& server, std::string_view bytes) {
  End end(server);
  BIO* const in = BIO_new(BIO_s_mem());
  BIO_set_mem_eof_return(in, 0);
  SSL_set_bio(end.ssl.get(), in, BIO_new(BIO_s_mem()));
  BIO_write(in, bytes.data(), static_cast<int>(bytes.size()));
  end.advance();
  EXPECT_EQ(end.step, Step::kFailed);
  return end.error.value_or(Error{});
}

TEST_F(Tls, RefusesWhatIsNotTls) {
  EXPECT_THAT(error_after(*root(), "GET / HTTP/1.1\r\nHost: x\r\n\r\n").message, HasSubstr("http request"));
  const Error random = error_after(*root(), "\x7f\x13\x99 random bytes, no TLS");
  EXPECT_EQ(random.code, Code::kUnauthenticated);
  EXPECT_THAT(random.message, HasSubstr("wrong version number"));
}

TEST_F(Tls, TellsAClosedConnectionFromARefusal) {
  for (const std::string_view bytes : {std::string_view(), std::string_view("\x16\x03\x01", 3)}) {
    const Error closed = error_after(*root(), bytes);
    EXPECT_EQ(closed.code, Code::kUnavailable);
    EXPECT_EQ(closed.message, "handshake: the peer closed the connection");
  }
}

TEST_F(Tls, ASiteIsNoServerAndNoAggregator) {
  const Handshake server(pki.member_server(Role::kSite, NodeId(7), "hospital-a"), site());
  EXPECT_EQ(server.client.step, Step::kFailed);
  EXPECT_THAT(server.client_error(), HasSubstr("purpose"));

  const Handshake met(root(), site());
  ASSERT_TRUE(met.ok());
  const Status refused = may_speak_as(peer_identity(met.server.ssl.get()).value(), Role::kAggregator);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kPermissionDenied);
  EXPECT_THAT(refused.error().message, HasSubstr("site 7 (hospital-a) may not act as aggregator"));
}

TEST_F(Tls, EnrolmentKnowsTheServerByItsPin) {
  const Handshake met(pki.enrol_server(), pki.enrol_client());
  ASSERT_TRUE(met.ok()) << met.client_error();
  const auto server = peer_identity(met.client.ssl.get());
  ASSERT_TRUE(server.ok()) << server.error().to_string();
  EXPECT_EQ(server->role, Role::kCoordinator);
  EXPECT_FALSE(peer_identity(met.server.ssl.get()).ok()) << "the client has only its token";
}

TEST_F(Tls, WrongPinIsRefusedAndBothAreNamed) {
  const TestPki other;
  const Handshake refused(other.enrol_server(), pki.enrol_client());
  EXPECT_EQ(refused.client.error->code, Code::kUnauthenticated);
  EXPECT_THAT(refused.client_error(), HasSubstr(pki.pin()));
  EXPECT_THAT(refused.client_error(), HasSubstr(other.pin()));
  EXPECT_EQ(refused.client_error().find('\n'), std::string::npos);
  EXPECT_THAT(refused.server_error(), HasSubstr("the peer refused: unknown CA"));
}

TEST_F(Tls, ThePinnedAuthorityMustHaveSignedTheServer) {
  // Shows the right authority, which anyone may copy, beside a certificate from another one.
  const auto imposter = TlsContext::enrol_server(pki.foreign_credentials(Role::kCoordinator, NodeId(1), "root"));
  const Handshake foreign(imposter.value(), pki.enrol_client());
  EXPECT_EQ(foreign.client.step, Step::kFailed);
  EXPECT_THAT(foreign.client_error(), HasSubstr("coordinator 1 (root) is refused"));
  const auto expired = TlsContext::enrol_server(pki.expired_credentials(Role::kCoordinator, NodeId(1), "root"));
  EXPECT_THAT(Handshake(expired.value(), pki.enrol_client()).client_error(), HasSubstr("expired"));
}

TEST_F(Tls, OnlyTheCoordinatorEnrols) {
  const auto aggregator = TlsContext::enrol_server(pki.credentials(Role::kAggregator, NodeId(3), "eu"));
  EXPECT_THAT(Handshake(aggregator.value(), pki.enrol_client()).client_error(),
              HasSubstr("aggregator 3 (eu) may not act as coordinator"));
  const auto site_server = TlsContext::enrol_server(pki.credentials(Role::kSite, NodeId(7), "hospital-a"));
  EXPECT_THAT(Handshake(site_server.value(), pki.enrol_client()).client_error(), HasSubstr("purpose"));
  Credentials bare = pki.credentials(Role::kCoordinator, NodeId(1), "root");
  bare.authorities = {bare.chain.front()};  // shows no authority at all
  EXPECT_THAT(Handshake(TlsContext::enrol_server(bare).value(), pki.enrol_client()).client_error(),
              HasSubstr("shows no authority"));
}

TEST_F(Tls, ContextsRefuseWhatCannotWork) {
  Credentials mixed = pki.credentials(Role::kSite, NodeId(7), "hospital-a");
  mixed.key = PrivateKey::generate().value();
  EXPECT_EQ(TlsContext::member_client(mixed).error().code, Code::kInvalidArgument);
  mixed.chain.clear();
  EXPECT_EQ(TlsContext::member_server(mixed).error().code, Code::kInvalidArgument);
  EXPECT_FALSE(TlsContext::enrol_client("sha256:abc").ok());
}

TEST(DenyList, ByNodeAndBySerial) {
  DenyList deny;
  const PeerIdentity peer{Role::kSite, NodeId(7), "hospital-a", "4abc", WallTime()};
  EXPECT_TRUE(deny.check(peer).ok());
  deny.replace({{NodeId(7)}, {}});
  ASSERT_FALSE(deny.check(peer).ok());
  EXPECT_EQ(deny.check(peer).error().code, Code::kPermissionDenied);
  EXPECT_THAT(deny.check(peer).error().message, HasSubstr("site 7 (hospital-a)"));
  deny.replace({{}, {{NodeId(7), "5abc"}, {NodeId(8), "4abc"}}});
  EXPECT_THAT(deny.check(peer).error().message, HasSubstr("certificate 4abc of site 7 (hospital-a)"));
  deny.replace({{}, {{NodeId(7), "4abc"}}});
  EXPECT_TRUE(deny.check(peer).ok());
  deny.replace({});
  EXPECT_TRUE(deny.check(peer).ok());
}

TEST(DenyList, AMemberMayShowAnyCertificateOfItsCurrentKey) {
  const PublicKey own = PublicKey::of(PrivateKey::generate().value());
  const PublicKey other = PublicKey::of(PrivateKey::generate().value());
  const WallTime issued{std::chrono::hours(1000)};
  const auto shows = [](const PublicKey& key, WallTime when) {
    return PeerIdentity{Role::kSite, NodeId(7), "a", "77", {}, key, when};
  };
  DenyList deny;
  DenyEntries entries;
  entries.serials_hex = {{NodeId(7), "78"}};
  entries.current = {{NodeId(7), {own.id(), issued}}};
  deny.replace(entries);
  EXPECT_TRUE(deny.check(shows(own, issued)).ok()) << "whatever its serial";
  EXPECT_FALSE(deny.check(shows(other, issued + std::chrono::hours(1))).ok());
  entries.adopts_newer = true;
  deny.replace(entries);
  EXPECT_TRUE(deny.check(shows(other, issued + std::chrono::hours(1))).ok()) << "the restore has lost its record";
  EXPECT_FALSE(deny.check(shows(other, issued - std::chrono::seconds(1))).ok());
  entries.keys = {other.id()};
  deny.replace(entries);
  EXPECT_FALSE(deny.check(shows(other, issued + std::chrono::hours(1))).ok());
}

TEST(DenyList, AKeyAndASerialThatWereRevokedStayRefusedUnderWhateverName) {
  const PublicKey stolen = PublicKey::of(*PrivateKey::generate());
  const PublicKey own = PublicKey::of(*PrivateKey::generate());
  DenyList deny;
  deny.replace({{}, {}, {stolen.id()}, {"5e"}});
  EXPECT_EQ(deny.check({Role::kSite, NodeId(7), "a", "77", {}, stolen}).error().code, Code::kPermissionDenied);
  EXPECT_EQ(deny.check({Role::kSite, NodeId(8), "b", "78", {}, stolen}).error().code, Code::kPermissionDenied);
  EXPECT_EQ(deny.check({Role::kSite, NodeId(7), "a", "5e", {}, own}).error().code, Code::kPermissionDenied);
  EXPECT_TRUE(deny.check({Role::kSite, NodeId(7), "a", "77", {}, own}).ok()) << "it has enrolled anew";
}

TEST(DenyList, ReplacedWhileOthersCheck) {
  DenyList deny;
  const PeerIdentity peer{Role::kSite, NodeId(7), "hospital-a", "4abc", WallTime()};
  std::thread writer([&] {
    for (int i = 0; i < 1000; ++i) deny.replace({{NodeId(7)}, {{NodeId(7), "4abc"}}});
  });
  for (int i = 0; i < 1000; ++i) (void)deny.check(peer);
  writer.join();
  EXPECT_FALSE(deny.check(peer).ok());
}

}  // namespace
}  // namespace fluvial::identity

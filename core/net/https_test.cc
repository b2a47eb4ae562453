#include "core/net/https.h"

#include <gmock/gmock.h>

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/strand.hpp>

#include "core/identity/csr.h"
#include "core/net/http_forward.h"
#include "core/net/http_test_support.h"
#include "core/net/strangers.h"
#include "core/net/test_clock.h"
#include "core/net/test_support.h"

namespace fluvial::net {
namespace {

using ::testing::HasSubstr;
using Tcp = asio::ip::tcp;
using TlsPtr = std::shared_ptr<const identity::TlsContext>;

constexpr NodeId kAnna(9);

TlsPtr server_context(Role role = Role::kCoordinator) {
  return identity::TlsContext::admin_server(pki().credentials(role, NodeId(1), "root")).value();
}
TlsPtr client_context(const identity::Credentials& credentials) {
  return identity::TlsContext::admin_client(credentials).value();
}
TlsPtr anna() { return client_context(pki().credentials(Role::kOperator, kAnna, "anna")); }

// Anna's, with a certificate that is good for `validity`.
TlsPtr anna_for(std::chrono::seconds validity) {
  identity::KeyAndCsr made = identity::make_key_and_csr().value();
  const identity::Grant grant{{Role::kOperator, kAnna, "anna"}, validity, {}, {}};
  identity::Credentials credentials = pki().credentials(Role::kOperator, kAnna, "anna");
  credentials.key = made.key;
  credentials.chain = {pki().authority().issue(made.csr_der.span(), grant, SystemClock().wall_now()).value()};
  return client_context(credentials);
}

Awaitable<HttpResponse> answer_name(HttpRequest request) {
  if (request.path == "/endless") {
    HttpResponse response;
    response.lines = write_until_refused;
    co_return response;
  }
  if (request.path == "/large") co_return HttpResponse::text(200, std::string(3'000'000, 'x'));
  co_return HttpResponse::text(200, describe(*request.certificate) + " says " + request.body);
}

class HttpsTest : public ::testing::Test {
 protected:
  void start(HttpsSettings settings = {}, TlsPtr tls = server_context()) {
    auto opened = HttpsServer::open(
        threads_.executor(), {"127.0.0.1", 0}, [tls] { return tls; }, settings, hooks_,
        [this](const identity::PeerIdentity& peer) -> Status {
          FLUVIAL_TRY(identity::may_speak_as(peer, Role::kOperator));
          return shut_out_ ? Status(Error{Code::kPermissionDenied, "anna is revoked"}) : Status();
        });
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    server_ = std::move(*opened);
    running_ = asio::co_spawn(threads_.executor(), server_->run(answer_name), asio::use_future);
  }
  void TearDown() override {
    server_->stop();
    running_.get();
  }
  HttpAddress at(TlsPtr tls) const { return TlsAddress{{"127.0.0.1", server_->port()}, std::move(tls)}; }
  Result<HttpReply> ask(TlsPtr tls, std::string_view target = "/", std::string_view body = "hello") const {
    return http_request(at(std::move(tls)), "POST", target, body, kLong);
  }

  TestClock clock_;  // of those who set it
  Threads threads_;
  std::shared_ptr<RecordingHooks> hooks_ = std::make_shared<RecordingHooks>();
  std::atomic<bool> shut_out_ = false;
  std::shared_ptr<HttpsServer> server_;
  std::future<void> running_;
};

TEST_F(HttpsTest, ARequestSaysWhoseCertificateItCameWith) {
  start();
  const Result<HttpReply> reply = ask(anna());
  ASSERT_TRUE(reply.ok()) << reply.error().message;
  EXPECT_EQ(reply->body, "operator 9 (anna) says hello");
}

TEST_F(HttpsTest, ALargeAnswerComesWhole) {
  start();
  EXPECT_EQ(ask(anna(), "/large")->body.size(), 3'000'000U);
}

TEST_F(HttpsTest, AProgramThatOnlyKnowsHttpIsTakenToo) {
  start();
  const auto tls = pki().other_alpn_client();  // "http/1.1", with a site's certificate
  const auto reply = threads_.run(connect(threads_.executor(), "127.0.0.1", server_->port(), tls, {}));
  (void)reply;  // its own idea of the protocol is another; the server has let it in as far as the admission
  hooks_->wait_refused(reason::kNotAdmitted);
}

TEST_F(HttpsTest, WithoutAGoodCertificateNobodyGetsAsFarAsHttp) {
  start();
  const auto expired = client_context(pki().expired_credentials(Role::kOperator, kAnna, "anna"));
  EXPECT_THAT(ask(expired).error().message, HasSubstr("expired"));
  hooks_->wait_refused(reason::kBadCertificate);
  EXPECT_EQ(ask(expired).error().code, Code::kUnauthenticated);
  EXPECT_EQ(http_request(TcpAddress{"127.0.0.1", server_->port()}, "GET", "/", "", kLong)->status, 400);
  hooks_->wait_refused(reason::kPlainHttp);
}

TEST_F(HttpsTest, WhoIsNotAdmittedHearsWhy) {
  start();
  const auto site = client_context(pki().credentials(Role::kSite, NodeId(7), "hospital-a"));
  const Result<HttpReply> reply = ask(site);
  ASSERT_TRUE(reply.ok()) << reply.error().message;
  EXPECT_EQ(reply->status, 403);
  EXPECT_THAT(reply->body, HasSubstr("site 7 (hospital-a) may not act as operator"));
  hooks_->wait_refused(reason::kNotAdmitted);
}

TEST_F(HttpsTest, WhoIsShutOutInTheMiddleOfAnAnswerIsCutOff) {
  start();
  int lines = 0;
  const Result<HttpReply> reply = http_get_lines(at(anna()), "/endless", [&](std::string_view) {
    if (++lines == 3) {
      shut_out_ = true;
      server_->admit_again();
    }
    return true;
  });
  EXPECT_FALSE(reply.ok()) << "the stream has no end of its own";
  hooks_->wait_refused(reason::kNotAdmitted);
  EXPECT_EQ(ask(anna())->status, 403);
}

TEST_F(HttpsTest, NoConnectionOutlivesItsCertificate) {
  start();
  bool let_in = false;
  const Result<HttpReply> reply = http_get_lines(at(anna_for(std::chrono::seconds(2))), "/endless",
                                                 [&](std::string_view) { return let_in = true; });
  EXPECT_FALSE(reply.ok());
  EXPECT_TRUE(let_in) << "or it is another reason that ends it";
}

TEST_F(HttpsTest, TheServerMustBeTheCoordinator) {
  start({}, server_context(Role::kAggregator));
  EXPECT_THAT(ask(anna()).error().message, HasSubstr("may not act as coordinator"));
}

TEST_F(HttpsTest, RequestsAreCarriedOnToItWithAnOperatorsCertificate) {
  start();
  HttpRequest request;
  request.method = "POST";
  request.path = "/";
  request.body = "hello";
  const HttpResponse answered =
      threads_.run(forward_request(at(anna()), request, kLong), Executor(asio::make_strand(threads_.executor())));
  EXPECT_EQ(answered.status, 200);
  EXPECT_EQ(answered.body, "operator 9 (anna) says hello");
  const auto site = client_context(pki().credentials(Role::kSite, NodeId(7), "hospital-a"));
  EXPECT_EQ(
      threads_.run(forward_request(at(site), request, kLong), Executor(asio::make_strand(threads_.executor()))).status,
      403);
}

TEST_F(HttpsTest, OneClientHoldsOnlySoManyConnections) {
  HttpsSettings settings;
  settings.connections_per_client_max = 1;
  start(settings);
  bool asked = false;
  const Result<HttpReply> first = http_get_lines(at(anna()), "/endless", [&](std::string_view) {
    const Result<HttpReply> second = ask(anna());
    EXPECT_TRUE(second.ok() && second->body.find("too many connections of anna") != std::string::npos);
    asked = true;
    return false;
  });
  EXPECT_TRUE(first.ok() && asked);
}

TEST_F(HttpsTest, TheStillestStrangerGivesWay) {
  HttpsSettings settings;
  settings.strangers_max = 4;
  settings.strangers_per_address_max = 4;
  settings.clock = &clock_;
  start(settings);
  asio::io_context context;
  std::vector<Tcp::socket> silent;
  for (int i = 0; i < 4; ++i) {
    silent.emplace_back(context).connect({asio::ip::make_address("127.0.0.1"), server_->port()});
  }
  EXPECT_FALSE(ask(anna()).ok()) << "nobody goes who came a moment ago";
  clock_.advance(Strangers::kPatience);
  const Result<HttpReply> reply = ask(anna());
  EXPECT_TRUE(reply.ok()) << reply.error().message;
}

}  // namespace
}  // namespace fluvial::net

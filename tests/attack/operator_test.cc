// The admin port for operators, and what an operator's certificate is good for elsewhere.
#include "core/identity/csr.h"
#include "tests/attack/fixture.h"
#include "tests/attack/flood.h"

namespace fluvial::attack {
namespace {

class OperatorAttack : public AttackTest {
 protected:
  void start_on_network(std::uint64_t sites) {
    cli::FederationShape shape{.sites = sites, .aggregators = 0};
    shape.arguments["coordinator"] = {"--admin-listen", "127.0.0.1:0"};
    start(std::move(shape));
  }
  net::HttpAddress admin(const identity::Credentials& credentials) {
    return net::TlsAddress{{kMembersAddress, coordinator_port("admin_port")},
                           identity::TlsContext::admin_client(credentials).value()};
  }
  static int asked(const net::HttpAddress& place, const char* method, const char* path) {
    const auto reply = net::http_request(place, method, path, "", kPatience);
    return reply.ok() ? reply->status : -1;
  }
};

TEST_F(OperatorAttack, AnOperatorsCertificateIsNothingToTheTree) {
  start_on_network(2);
  start_held_run();
  const identity::Credentials anna = enrolled("anna", "operator");
  EXPECT_FALSE(ask_lease(anna).ok());
  EXPECT_FALSE(join_coordinator(anna).ok());
  EXPECT_GE(metric("coordinator", "fluvial_coordinator_sessions_refused_total", "not_admitted"), 2);
  expect_rounds_go_on();
}

TEST_F(OperatorAttack, SilentStrangersKeepNoOperatorOut) {
  start_on_network(2);
  start_held_run();
  const net::HttpAddress anna = admin(enrolled("anna", "operator"));
  IdleConnections silent(coordinator_port("admin_port"), kStrangersAddress, 200);
  for (int i = 0; i < 30; ++i) {
    ASSERT_TRUE(silent.add(10).ok());
    EXPECT_EQ(asked(anna, "GET", "/v1/status"), 200) << i;
    EXPECT_TRUE(cli::get_page(federation_->coordinator_metrics_port(), "/healthz").ok()) << i;
  }
  expect_rounds_go_on();
}

TEST_F(OperatorAttack, ARevokedOperatorIsRefusedEverything) {
  start_on_network(0);
  const identity::Credentials anna = enrolled("anna", "operator");
  EXPECT_EQ(asked(admin(anna), "GET", "/v1/audit"), 200);
  EXPECT_EQ(asked(admin(anna), "POST", "/v1/backup"), 403) << "it may look";
  revoke("anna");
  for (const char* path : {"/v1/status", "/v1/audit", "/v1/self"}) EXPECT_EQ(asked(admin(anna), "GET", path), 403);
  EXPECT_EQ(asked(admin(anna), "POST", "/v1/renew"), 403);
}

TEST_F(OperatorAttack, AReaderFillsNoJournalWithRenewals) {
  start_on_network(0);
  const identity::Credentials anna = enrolled("anna", "operator");
  const Buffer csr = identity::make_csr(anna.key).value();
  int granted = 0;
  for (int i = 0; i < 20; ++i) {
    const auto reply = net::http_request(admin(anna), "POST", "/v1/renew", as_text(csr.span()), kPatience);
    ASSERT_TRUE(reply.ok()) << reply.error().message;
    EXPECT_TRUE(reply->status == 200 || reply->status == 429) << reply->body;
    granted += reply->status == 200 ? 1 : 0;
  }
  EXPECT_GT(granted, 0);
  EXPECT_LT(granted, 20);
}

TEST_F(OperatorAttack, AnOperatorsCertificateIsNotRenewedAtTheEnrolmentPort) {
  start_on_network(0);
  const identity::Credentials anna = enrolled("anna", "operator");
  Result<Connection> connection = Connection::open(coordinator_port("enrol_port"), as_stranger());
  ASSERT_TRUE(connection.ok()) << connection.error().message;
  const Buffer csr = identity::make_csr(anna.key).value();
  v1::Envelope asked;
  asked.mutable_renew_request()->set_csr_der(std::string(as_text(csr.span())));
  asked.mutable_renew_request()->set_certificate_pem(identity::Certificate::pem_of(anna.chain));
  ASSERT_TRUE(connection->send(asked).ok());
  const Result<v1::Envelope> answer = connection->receive();
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_NE(answer->renew_reply().code(), 0U);
  EXPECT_TRUE(answer->renew_reply().certificate_pem().empty());
}

}  // namespace
}  // namespace fluvial::attack

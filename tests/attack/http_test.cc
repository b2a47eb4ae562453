// The port of health and metrics, which asks nobody who they are.
#include "tests/attack/fixture.h"
#include "tests/attack/flood.h"

namespace fluvial::attack {
namespace {

class HttpAttack : public AttackTest {};

TEST_F(HttpAttack, IdleConnectionsStopNoProbe) {
  start(2, 0);
  start_held_run();
  const std::uint16_t port = federation_->coordinator_metrics_port();
  IdleConnections silent(port, kStrangersAddress, 100);
  IdleConnections beside(port, kMembersAddress, 100);
  std::vector<Connection> half;
  for (int i = 0; i < 30; ++i) {
    ASSERT_TRUE(silent.add(10).ok() && beside.add(10).ok());
    if (i < 20) {
      Result<Connection> connection = Connection::open(port);
      ASSERT_TRUE(connection.ok());
      (void)connection->write("GET /metrics HTTP/1.1\r\nHost: ");
      half.push_back(std::move(*connection));
    }
    for (const char* path : {"/healthz", "/readyz", "/metrics", "/status"}) {
      const Result<std::string> page = cli::get_page(port, path);
      ASSERT_TRUE(page.ok()) << i << " " << path << ": " << page.error().message;
    }
  }
  expect_rounds_go_on();
}

}  // namespace
}  // namespace fluvial::attack

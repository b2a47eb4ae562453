#include "core/net/connector.h"

#include <boost/asio/ip/tcp.hpp>

#include "core/net/test_support.h"

namespace fluvial::net {
namespace {

TEST(HostPort, ReadsWhatItWrites) {
  for (const std::string text : {"127.0.0.1:7443", "root.example:1", "[::1]:65535"}) {
    const auto address = parse_host_port(text);
    ASSERT_TRUE(address.ok()) << text;
    EXPECT_EQ(to_string(*address), text);
  }
  EXPECT_EQ(parse_host_port("[::1]:7")->host, "::1");
}

TEST(HostPort, RefusesTheRest) {
  for (const std::string text : {"", "host", ":1", "host:", "host:65536", "host:-1", "host:1x", "::1:7", "[]:1",
                                 "a:1:2", "[[a]:1", "[host]:1", "[::1]]:1"}) {
    const auto address = parse_host_port(text);
    ASSERT_FALSE(address.ok()) << text;
    EXPECT_EQ(address.error().code, Code::kInvalidArgument);
    EXPECT_NE(address.error().message.find("expected host:port"), std::string::npos);
  }
}

TEST(Connect, ByName) {
  Threads threads;
  TestServer server(threads);
  const auto session = threads.run(connect(threads.executor(), "localhost", server.port(), client_tls(), {}));
  ASSERT_TRUE(session.ok()) << session.error().to_string();
  EXPECT_TRUE(exchange(threads, *session, 1, 1000).ok());
  say_goodbye(threads, *session);
}

TEST(Connect, NobodyThere) {
  Threads threads;
  std::uint16_t port = 0;
  {
    TestServer server(threads);
    port = server.port();
  }
  const auto session = threads.run(connect(threads.executor(), "127.0.0.1", port, client_tls(), {}));
  ASSERT_FALSE(session.ok());
  EXPECT_EQ(session.error().code, Code::kUnavailable);
  EXPECT_NE(session.error().message.find("127.0.0.1:" + std::to_string(port)), std::string::npos);
  EXPECT_NE(session.error().message.find("refused"), std::string::npos) << session.error().message;
}

TEST(Connect, ANameThatIsNone) {
  Threads threads;
  const auto session = threads.run(connect(threads.executor(), "no-such-host.invalid", 1, client_tls(), {}));
  ASSERT_FALSE(session.ok());
  EXPECT_EQ(session.error().code, Code::kUnavailable);
  EXPECT_NE(session.error().message.find("no-such-host.invalid:1"), std::string::npos) << session.error().message;
}

TEST(Connect, AServerThatSaysNothing) {
  Threads threads;
  asio::ip::tcp::acceptor silent(threads.executor(), {asio::ip::address_v4::loopback(), 0});
  SessionSettings settings;
  settings.handshake_deadline = std::chrono::milliseconds(20);
  const auto session =
      threads.run(connect(threads.executor(), "127.0.0.1", silent.local_endpoint().port(), client_tls(), settings));
  ASSERT_FALSE(session.ok());
  EXPECT_EQ(session.error().code, Code::kUnavailable);
  EXPECT_NE(session.error().message.find("no TLS handshake in time"), std::string::npos) << session.error().message;
}

TEST(Connect, ThePeersRoleIsChecked) {
  Threads threads;
  TestServer server(threads, {}, echo, pki().member_server(Role::kAggregator, NodeId(3), "west"));
  const Admission only_root = [](const identity::PeerIdentity& peer) {
    return identity::may_speak_as(peer, Role::kCoordinator);
  };
  const auto session =
      threads.run(connect(threads.executor(), "127.0.0.1", server.port(), client_tls(), {}, nullptr, only_root));
  ASSERT_FALSE(session.ok());
  EXPECT_EQ(session.error().code, Code::kPermissionDenied);
}

}  // namespace
}  // namespace fluvial::net

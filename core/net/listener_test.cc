#include "core/net/listener.h"

#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/strand.hpp>
#include <stdexcept>

#include "core/net/deadline.h"
#include "core/net/strangers.h"
#include "core/net/test_clock.h"
#include "core/net/test_support.h"
#include "core/net/tls_stream.h"

namespace fluvial::net {
namespace {

using std::chrono::milliseconds;

// A plain TCP client that knows nothing of TLS.
class PlainClient {
 public:
  explicit PlainClient(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  }
  PlainClient(const PlainClient&) = delete;
  PlainClient& operator=(const PlainClient&) = delete;
  ~PlainClient() { ::close(fd_); }

  void write(std::string_view text) { EXPECT_EQ(::send(fd_, text.data(), text.size(), MSG_NOSIGNAL), text.size()); }
  std::string read_to_end() {
    std::string all;
    char block[4096];
    for (ssize_t count = 0; (count = ::recv(fd_, block, sizeof block, 0)) > 0;) {
      all.append(block, static_cast<std::size_t>(count));
    }
    return all;
  }

 private:
  int fd_;
};

void expect_good_session(Threads& threads, TestServer& server) {
  const auto session = server.connect_now();
  const Status done = exchange(threads, session, 3, 50'000);
  EXPECT_TRUE(done.ok()) << done.error().to_string();
  say_goodbye(threads, session);
}

Awaitable<void> echo_and_tell(std::shared_ptr<Session> session,
                              std::promise<std::optional<identity::PeerIdentity>>* seen) {
  seen->set_value(session->peer());
  co_await echo(session);
}

TEST(Listener, KnowsItsPeers) {
  Threads threads;
  std::promise<std::optional<identity::PeerIdentity>> seen;
  TestServer server(threads, {}, [&](std::shared_ptr<Session> session) { return echo_and_tell(session, &seen); });
  const auto session = server.connect_now();
  const identity::PeerIdentity peer = seen.get_future().get().value();
  EXPECT_EQ(peer.role, Role::kSite);
  EXPECT_EQ(peer.node, NodeId(7));
  EXPECT_EQ(peer.name, "hospital-a");
  say_goodbye(threads, session);
}

TEST(Listener, EnrolmentAsksForNoCertificate) {
  Threads threads;
  std::promise<std::optional<identity::PeerIdentity>> seen;
  TestServer server(
      threads, {}, [&](std::shared_ptr<Session> session) { return echo_and_tell(session, &seen); },
      pki().enrol_server());
  const auto session = server.try_connect({}, pki().enrol_client());
  ASSERT_TRUE(session.ok()) << session.error().to_string();
  EXPECT_FALSE(seen.get_future().get().has_value());
  EXPECT_EQ((*session)->member().role, Role::kCoordinator);
  EXPECT_TRUE(exchange(threads, *session, 1, 1000).ok());
  say_goodbye(threads, *session);
  EXPECT_EQ(server.try_connect().error().code, Code::kUnauthenticated);  // the member protocol, on this port
  server.hooks().wait_refused(reason::kWrongAlpn);
}

// Whoever is refused learns why, in TLS 1.3 with the first read at the latest.
Error refusal_of(Threads& threads, TestServer& server, std::shared_ptr<const identity::TlsContext> tls) {
  auto session = server.try_connect({}, std::move(tls));
  if (!session.ok()) return session.error();
  const auto frame = threads.run((*session)->receive(), (*session)->executor());
  EXPECT_FALSE(frame.ok());
  return frame.ok() ? Error{} : frame.error();
}

TEST(Listener, RefusesWhoIsNoMemberAndSaysSo) {
  Threads threads;
  TestServer server(threads);
  const Role site = Role::kSite;
  struct Case {
    std::shared_ptr<const identity::TlsContext> tls;
    std::string_view reason;
    std::string_view line;
  };
  const std::vector<Case> cases = {
      {pki().expired_client(site, NodeId(7), "a"), reason::kBadCertificate, "our certificate has expired"},
      {pki().foreign_client(site, NodeId(7), "a"), reason::kBadCertificate, "belongs to another federation"},
      {pki().no_alpn_client(), reason::kWrongAlpn, "does not speak this protocol"},
      {pki().other_alpn_client(), reason::kWrongAlpn, "does not speak this protocol"},
      {pki().tls12_client(), reason::kOldTls, "1.3 is required"},
  };
  std::map<std::string, int> expected;
  for (const Case& bad : cases) {
    const Error error = refusal_of(threads, server, bad.tls);
    EXPECT_EQ(error.code, Code::kUnauthenticated) << error.message;
    EXPECT_NE(error.message.find(bad.line), std::string::npos) << bad.line << " <- " << error.message;
    EXPECT_EQ(error.message.find('\n'), std::string::npos);
    server.hooks().wait_refused(bad.reason, ++expected[std::string(bad.reason)]);
    expect_good_session(threads, server);
  }
  server.stop();
  EXPECT_EQ(server.hooks().refusals, expected);
}

// Our own client has a certificate or does not connect, so this one stops at the TLS stream.
Awaitable<Status> first_read(Executor strand, std::uint16_t port, std::shared_ptr<const identity::TlsContext> tls) {
  asio::ip::tcp::socket socket(strand);
  const asio::ip::tcp::endpoint to(asio::ip::address_v4::loopback(), port);
  co_await socket.async_connect(to, asio::use_awaitable);
  TlsStream stream(std::move(socket), *tls->new_session(), "the server");
  if (const auto fault = co_await stream.handshake()) co_return fault->error;
  std::array<std::byte, 1> byte;
  co_return co_await stream.read_exactly(byte);
}

TEST(Listener, RefusesWhoShowsNoCertificate) {
  Threads threads;
  TestServer server(threads);
  const Executor strand = asio::make_strand(threads.executor());
  const Status read = threads.run(first_read(strand, server.port(), pki().anonymous_client()), strand);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, Code::kUnauthenticated);
  EXPECT_EQ(read.error().message, "the server: the server requires a certificate of this federation");
  server.hooks().wait_refused(reason::kNoCertificate);
  expect_good_session(threads, server);
}

TEST(Listener, AClientRefusesAServerThatIsNone) {
  Threads threads;
  const std::vector<std::shared_ptr<const identity::TlsContext>> servers = {
      pki().foreign_server(Role::kCoordinator, NodeId(1), "root"),
      pki().expired_server(Role::kCoordinator, NodeId(1), "root"),
  };
  for (const auto& tls : servers) {
    TestServer server(threads, {}, echo, tls);
    const auto session = server.try_connect();
    ASSERT_FALSE(session.ok());
    EXPECT_EQ(session.error().code, Code::kUnauthenticated) << session.error().message;
    server.hooks().wait([](const RecordingHooks& seen) { return !seen.refusals.empty(); });
  }
}

TEST(Listener, AnswersPlainHttpInItsOwnWords) {
  Threads threads;
  TestServer server(threads);
  for (const std::string_view start : {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "POST /rounds HTTP/1.1\r\n\r\n", "PRI *"}) {
    PlainClient client(server.port());
    client.write(start);
    const std::string answer = client.read_to_end();
    EXPECT_EQ(answer.substr(0, 12), "HTTP/1.0 400") << answer;
    EXPECT_NE(answer.find("this port speaks TLS"), std::string::npos);
  }
  server.hooks().wait_refused(reason::kPlainHttp, 3);
  expect_good_session(threads, server);
}

TEST(Listener, RefusesRandomBytes) {
  Threads threads;
  TestServer server(threads);
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    PlainClient client(server.port());
    Buffer noise = pattern(seed, 1 + seed * 7);
    if (seed % 2 == 0) noise.data()[0] = std::byte{0x16};  // as if TLS began
    client.write(as_text(noise.span()));
  }
  server.hooks().wait([](const RecordingHooks& seen) {
    int count = 0;
    for (const auto& [reason, times] : seen.refusals) count += times;
    return count == 50;
  });
  expect_good_session(threads, server);
}

TEST(Listener, AHandshakeHasADeadline) {
  Threads threads;
  ListenerSettings settings;
  settings.session.handshake_deadline = milliseconds(30);
  TestServer server(threads, settings);
  PlainClient silent(server.port());
  PlainClient slow(server.port());
  slow.write("\x16\x03");
  server.hooks().wait_refused(reason::kHandshakeSlow, 2);
  EXPECT_EQ(silent.read_to_end(), "");
}

TEST(Listener, WhoHoldsHandshakesOpenGivesWayToNewcomers) {
  TestClock clock;
  Threads threads;
  ListenerSettings settings;
  settings.strangers_per_address_max = 20;
  settings.session.handshake_deadline = std::chrono::minutes(10);
  settings.session.clock = &clock;
  TestServer server(threads, settings);
  std::vector<std::unique_ptr<PlainClient>> held;
  for (int i = 0; i < 20; ++i) held.push_back(std::make_unique<PlainClient>(server.port()));
  for (int i = 0; i < 10; ++i) held[static_cast<std::size_t>(i)]->write("\x16\x03");
  EXPECT_FALSE(server.try_connect().ok()) << "nobody goes who came a moment ago";
  EXPECT_EQ(server.hooks().count(reason::kTooManyHandshakes), 1);
  clock.advance(Strangers::kPatience);
  // An honest one at a time: each finds the bound reached, and gets in all the same.
  for (int i = 0; i < 30; ++i) expect_good_session(threads, server);
  EXPECT_GE(server.hooks().count(reason::kGaveWay), 1);
  EXPECT_EQ(server.hooks().count(reason::kTooManyHandshakes), 1);
}

TEST(Listener, SessionsAreBounded) {
  Threads threads;
  ListenerSettings settings;
  settings.sessions_max = 5;
  TestServer server(threads, settings);
  std::vector<std::shared_ptr<Session>> sessions;
  for (int i = 0; i < 5; ++i) sessions.push_back(server.connect_now());
  EXPECT_EQ(server.try_connect().error().code, Code::kUnavailable);
  server.hooks().wait_refused(reason::kTooManySessions);
  for (const auto& session : sessions) EXPECT_TRUE(exchange(threads, session, 1, 100).ok());
  for (const auto& session : sessions) say_goodbye(threads, session);
}

TEST(Listener, AMembersOldestSessionEndsForItsNewestAndNoOthers) {
  Threads threads;
  ListenerSettings settings;
  settings.sessions_per_member_max = 2;
  TestServer server(threads, settings);
  auto other = server.try_connect({}, pki().member_client(Role::kAggregator, NodeId(3), "west"));
  ASSERT_TRUE(other.ok());
  std::vector<std::shared_ptr<Session>> mine;
  for (int i = 0; i < 3; ++i) {
    mine.push_back(server.connect_now());
    if (i < 2) EXPECT_TRUE(exchange(threads, mine.back(), 1, 100).ok());
  }
  const auto end = threads.run(mine[0]->receive(), mine[0]->executor());
  EXPECT_EQ(end.error().code, Code::kResourceExhausted) << end.error().to_string();
  server.hooks().wait_refused(reason::kTooManyOfMember);
  EXPECT_TRUE(exchange(threads, mine[1], 1, 100).ok());
  EXPECT_TRUE(exchange(threads, mine[2], 1, 100).ok());
  EXPECT_TRUE(exchange(threads, *other, 1, 100).ok());
  for (const auto& session : {mine[1], mine[2], *other}) say_goodbye(threads, session);
}

// On an enrolment port nobody is known until the end.
TEST(Listener, ClientsWithoutACertificateGiveWayToNewcomersToo) {
  TestClock clock;
  Threads threads;
  ListenerSettings settings;
  settings.strangers_per_address_max = 3;
  settings.session.clock = &clock;
  TestServer server(threads, settings, echo, pki().enrol_server());
  std::vector<std::shared_ptr<Session>> idle;
  for (int i = 0; i < 3; ++i) {
    idle.push_back(*server.try_connect({}, pki().enrol_client()));
    EXPECT_TRUE(exchange(threads, idle.back(), 1, 100).ok()) << "its handshake is over at the server, too";
  }
  clock.advance(Strangers::kPatience);
  const auto newcomer = server.try_connect({}, pki().enrol_client());
  ASSERT_TRUE(newcomer.ok()) << newcomer.error().to_string();
  EXPECT_TRUE(exchange(threads, *newcomer, 1, 100).ok());
  server.hooks().wait_refused(reason::kGaveWay);
  EXPECT_FALSE(threads.run(idle[0]->receive(), idle[0]->executor()).ok());
  EXPECT_TRUE(exchange(threads, idle[1], 1, 100).ok());
  for (const auto& session : {idle[1], idle[2], *newcomer}) say_goodbye(threads, session);
}

TEST(Listener, ArrivalsFasterThanTheRateWaitTheirTurn) {
  Threads threads;
  ListenerSettings settings;
  settings.accepts_per_s = 200;
  settings.accepts_burst = 1;
  TestServer server(threads, settings);
  for (int i = 0; i < 10; ++i) expect_good_session(threads, server);
}

TEST(Listener, AdmissionSaysWhyNot) {
  Threads threads;
  const Admission admission = [](const identity::PeerIdentity& peer) -> Status {
    if (peer.role == Role::kSite) return Error{Code::kPermissionDenied, "hospital-a is on the deny list"};
    return {};
  };
  TestServer server(threads, {}, echo, server_tls(), admission);
  const Error error = refusal_of(threads, server, client_tls());
  EXPECT_EQ(error.code, Code::kPermissionDenied);
  EXPECT_NE(error.message.find("hospital-a is on the deny list"), std::string::npos) << error.message;
  server.hooks().wait_refused(reason::kNotAdmitted);
  auto other = server.try_connect({}, pki().member_client(Role::kAggregator, NodeId(3), "west"));
  ASSERT_TRUE(other.ok());
  EXPECT_TRUE(exchange(threads, *other, 1, 100).ok());
  say_goodbye(threads, *other);
}

Awaitable<void> throw_after_one(std::shared_ptr<Session> session) {
  (void)co_await session->receive();
  throw std::runtime_error("the handler is broken");
}

TEST(Listener, AHandlersExceptionEndsItsSessionAlone) {
  Threads threads;
  TestServer server(threads, {}, throw_after_one);
  const auto first = server.connect_now();
  const auto second = server.connect_now();
  EXPECT_EQ(exchange(threads, first, 1, 10).error().code, Code::kUnavailable);
  server.hooks().wait([](const RecordingHooks& seen) { return seen.handlers_failed == 1; });
  EXPECT_TRUE(second->is_open());
  say_goodbye(threads, second);
}

Awaitable<void> ignore_everything(std::shared_ptr<Session>) { co_await sleep_for(std::chrono::hours(10)); }

TEST(Listener, StopDrainsAndThenCancels) {
  Threads threads;
  ListenerSettings settings;
  settings.stop_deadline = milliseconds(50);
  TestServer server(threads, settings, ignore_everything);
  const auto session = server.connect_now();
  server.hooks().wait([](const RecordingHooks& seen) { return seen.opened == 1; });
  server.stop();
  const auto end = threads.run(session->receive(), session->executor());
  EXPECT_EQ(end.error().code, Code::kUnavailable);
  EXPECT_NE(end.error().message.find("shutting down"), std::string::npos) << end.error().message;
  EXPECT_EQ(server.try_connect().error().code, Code::kUnavailable);
}

// Takes every file descriptor that is left, up to a lowered limit.
TEST(Listener, RunningOutOfFilesDoesNotEndIt) {
#ifdef __clang__
#if __has_feature(undefined_behavior_sanitizer)
  GTEST_SKIP() << "the sanitizer's vptr check needs file descriptors itself";
#endif
#endif
  Threads threads;
  auto hooks = std::make_shared<RecordingHooks>();
  auto listener = Listener::open(threads.executor(), "127.0.0.1", 0, identity::live(server_tls()), {}, hooks);
  ASSERT_TRUE(listener.ok());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  hooks->on_accept_failed = [before] { ::setrlimit(RLIMIT_NOFILE, &before); };
  PlainClient waiting((*listener)->port());  // connected by the kernel, not accepted yet
  waiting.write("GET / HTTP/1.1\r\n\r\n");
  const int next_fd = ::dup(0);
  ASSERT_GE(next_fd, 0);
  ::close(next_fd);
  rlimit lowered = before;
  lowered.rlim_cur = static_cast<rlim_t>(next_fd);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &lowered), 0);
  auto running = asio::co_spawn(threads.executor(), (*listener)->run(echo), asio::use_future);
  hooks->wait([](const RecordingHooks& seen) { return seen.accepts_failed > 0; });
  EXPECT_EQ(waiting.read_to_end().substr(0, 12), "HTTP/1.0 400");
  (*listener)->stop();
  running.get();
}

TEST(Listener, APortInUseIsAnErrorThatNamesIt) {
  Threads threads;
  TestServer server(threads);
  const auto again =
      Listener::open(threads.executor(), "127.0.0.1", server.port(), identity::live(server_tls()), {}, nullptr);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, Code::kUnavailable);
  EXPECT_NE(again.error().message.find("127.0.0.1:" + std::to_string(server.port())), std::string::npos);
}

}  // namespace
}  // namespace fluvial::net

#include "core/net/proxy.h"

#include <gmock/gmock.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>

#include "core/net/test_support.h"

namespace fluvial::net {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const HostPort kPeer{"fl.example.org", 7400};
const Proxy kProxy{{"proxy.example", 3128}, ""};

TEST(ParseProxy, ReadsWhatIsUsual) {
  EXPECT_EQ(parse_proxy("http://proxy.example:3128")->address, (HostPort{"proxy.example", 3128}));
  EXPECT_EQ(parse_proxy("HTTP://proxy.example:3128/")->address, (HostPort{"proxy.example", 3128}));
  EXPECT_EQ(parse_proxy("proxy.example:3128")->address, (HostPort{"proxy.example", 3128}));
  EXPECT_EQ(parse_proxy("http://proxy.example")->address, (HostPort{"proxy.example", 80}));
  EXPECT_EQ(parse_proxy("http://[::1]:3128")->address, (HostPort{"::1", 3128}));
  EXPECT_EQ(parse_proxy("http://[::1]")->address, (HostPort{"::1", 80}));
  EXPECT_EQ(parse_proxy("http://proxy.example")->authorization, "");
  EXPECT_EQ(parse_proxy("http://Aladdin:open%20sesame@p:1")->authorization, "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
  EXPECT_EQ(parse_proxy("http://user@p:1")->authorization, "Basic dXNlcjo=");
  EXPECT_EQ(parse_proxy("http://u:p@ss@p:1")->address, (HostPort{"p", 1}));
}

TEST(ParseProxy, RefusesTheRestWithoutShowingIt) {
  for (const std::string url :
       {"", "http://", "https://secret:3128", "socks5://secret:1", "http://secret:0", "http://secret:99999",
        "http://secret:1/path", "http://secret:1?x", "http://a:secret%zz@p:1", "http://a:secret%0d%0ax@p:1",
        "http://secret word:1", "http://a:secret@", "http://secret\r\n:1", "http://[secret:1"}) {
    const auto proxy = parse_proxy(url);
    ASSERT_FALSE(proxy.ok()) << url;
    EXPECT_EQ(proxy.error().code, Code::kInvalidArgument);
    EXPECT_THAT(proxy.error().message, AllOf(HasSubstr("http://HOST:PORT"), Not(HasSubstr("secret")))) << url;
  }
  EXPECT_FALSE(parse_proxy("http://" + std::string(5000, 'a') + ":1").ok());
}

bool is_direct(std::string_view no_proxy, const std::string& host, std::uint16_t port = 7400) {
  return ProxyRules::make("http://p:1", no_proxy)->of({host, port}) == nullptr;
}

TEST(NoProxy, NamesAddressesAndNetworks) {
  EXPECT_FALSE(is_direct("", "fl.example.org"));
  EXPECT_TRUE(is_direct("*", "fl.example.org"));
  for (const char* list : {"example.org", ".example.org", "*.example.org", "EXAMPLE.org", "a b,example.org",
                           "fl.example.org", "example.org:7400", ",,  example.org"}) {
    EXPECT_TRUE(is_direct(list, "fl.example.org")) << list;
  }
  for (const char* list :
       {"ample.org", "example", "example.org:7401", "x.fl.example.org", "example.org/8", "10.0.0.0/8"}) {
    EXPECT_FALSE(is_direct(list, "fl.example.org")) << list;
  }
  EXPECT_TRUE(is_direct("example.org", "FL.Example.ORG."));
  for (const char* list : {"10.1.2.3", "10.0.0.0/8", "10.1.2.3:7400", "10.1.2.0/23", "0.0.0.0/0", "10.1.2.3/32"}) {
    EXPECT_TRUE(is_direct(list, "10.1.2.3")) << list;
  }
  for (const char* list : {"10.1.2.4", "11.0.0.0/8", "10.1.2.3:1", "10.1.0.0/24", "10.0.0.0/33", "10.0.0.0/",
                           "10.0.0.0/x", "::/0", "0/8"}) {
    EXPECT_FALSE(is_direct(list, "10.1.2.3")) << list;
  }
  EXPECT_TRUE(is_direct("fd00::/8", "fd00::1"));
  EXPECT_TRUE(is_direct("[fd00::1]:7400", "fd00::1"));
  EXPECT_TRUE(is_direct("::1", "::1"));
  EXPECT_FALSE(is_direct("fd00::/8", "fe80::1"));
}

TEST(JudgeAnswer, SaysWhatTheProxySaid) {
  for (const char* good : {"HTTP/1.1 200 Connection established", "HTTP/1.0 200", "HTTP/1.1 204 x\r\nVia: y"}) {
    EXPECT_TRUE(judge_answer(good, kProxy, kPeer).ok()) << good;
  }
  const Error wants = judge_answer("HTTP/1.1 407 Proxy Authentication Required", kProxy, kPeer).error();
  EXPECT_EQ(wants.code, Code::kPermissionDenied);
  EXPECT_THAT(wants.message, AllOf(HasSubstr("proxy proxy.example:3128 (for fl.example.org:7400)"),
                                   HasSubstr("407 Proxy Authentication Required"), HasSubstr("USER:PASSWORD@")));
  const Proxy known{kProxy.address, "Basic c2VjcmV0"};
  EXPECT_THAT(judge_answer("HTTP/1.1 407 No", known, kPeer).error().message,
              AllOf(HasSubstr("does not take these credentials"), Not(HasSubstr("c2VjcmV0"))));
  EXPECT_EQ(judge_answer("HTTP/1.1 403 Forbidden", kProxy, kPeer).error().code, Code::kPermissionDenied);
  EXPECT_EQ(judge_answer("HTTP/1.1 503 No route", kProxy, kPeer).error().code, Code::kUnavailable);
  EXPECT_EQ(judge_answer("HTTP/1.1 302 Found", kProxy, kPeer).error().code, Code::kUnavailable);
}

TEST(JudgeAnswer, WhatIsNoAnswer) {
  for (const std::string bad : {"", "SSH-2.0-x", "HTTP/2 200", "HTTP/1.1 20", "HTTP/1.1 2000", "HTTP/1.1 0x2 OK",
                                "HTTP/1.1  200", "HTTP/1.1200 OK OK", "HTTP/1.9 200 OK", "\x16\x03\x01"}) {
    const Status judged = judge_answer(bad, kProxy, kPeer);
    ASSERT_FALSE(judged.ok()) << bad;
    EXPECT_EQ(judged.error().code, Code::kUnavailable);
    EXPECT_THAT(judged.error().message, HasSubstr("is no HTTP proxy"));
  }
  const Error noisy = judge_answer("HTTP/1.1 500 \x1b[31m" + std::string(5000, 'x'), kProxy, kPeer).error();
  EXPECT_LT(noisy.message.size(), 400U);
  EXPECT_EQ(noisy.message.find('\x1b'), std::string::npos);
}

// Takes one connection, reads a request, answers with bytes of the test's and closes.
class FakeProxy {
 public:
  explicit FakeProxy(Threads& threads, std::string answer)
      : acceptor_(threads.executor(), {asio::ip::address_v4::loopback(), 0}) {
    served_ = asio::co_spawn(threads.executor(), serve(std::move(answer)), asio::use_future);
  }
  std::string request() { return served_.get(); }
  SessionSettings settings(const std::string& credentials = "") {
    SessionSettings settings;
    settings.proxy = proxy_rules("http://" + credentials + "127.0.0.1:" + std::to_string(port()), "").value();
    return settings;
  }

 private:
  std::uint16_t port() { return acceptor_.local_endpoint().port(); }
  Awaitable<std::string> serve(std::string answer) {
    auto [accept_error, socket] = co_await acceptor_.async_accept(asio::as_tuple(asio::use_awaitable));
    std::string request;
    co_await asio::async_read_until(socket, asio::dynamic_buffer(request), "\r\n\r\n",
                                    asio::as_tuple(asio::use_awaitable));
    co_await asio::async_write(socket, asio::buffer(answer), asio::as_tuple(asio::use_awaitable));
    boost::system::error_code ignored;  // the client may be gone by now
    socket.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
    std::string rest;  // the tunnel's client may be writing: its words are read, or the close would reset them
    co_await asio::async_read(socket, asio::dynamic_buffer(rest), asio::as_tuple(asio::use_awaitable));
    co_return request;
  }
  asio::ip::tcp::acceptor acceptor_;
  std::future<std::string> served_;
};

Error failure_through(const std::string& answer, std::string* request = nullptr, const std::string& credentials = "") {
  Threads threads;
  FakeProxy proxy(threads, answer);
  const auto session =
      threads.run(connect(threads.executor(), "nowhere.invalid", 7400, client_tls(), proxy.settings(credentials)));
  const std::string asked = proxy.request();
  if (request != nullptr) *request = asked;
  return session.ok() ? Error{} : session.error();
}

TEST(Tunnel, TheProxyIsAskedForThePeerByName) {
  std::string request;
  const Error refused = failure_through("HTTP/1.1 403 Forbidden\r\nX: y\r\n\r\nno", &request, "user:secret@");
  EXPECT_THAT(refused.message, AllOf(HasSubstr("403 Forbidden"), HasSubstr("nowhere.invalid:7400")));
  EXPECT_TRUE(request.starts_with("CONNECT nowhere.invalid:7400 HTTP/1.1\r\nHost: nowhere.invalid:7400\r\n"))
      << request;
  EXPECT_THAT(request, HasSubstr("\r\nProxy-Authorization: Basic dXNlcjpzZWNyZXQ=\r\n"));
}

TEST(Tunnel, HostileAnswersAreBounded) {
  EXPECT_THAT(failure_through("").message, HasSubstr("closed the connection without an answer"));
  EXPECT_THAT(failure_through("HTTP/1.1 200 OK\r\n").message, HasSubstr("closed the connection without an answer"));
  EXPECT_THAT(failure_through("220 mail.example ESMTP\r\n").message, HasSubstr("is no HTTP proxy"));
  EXPECT_THAT(failure_through("HTTP/1.1 200 OK\r\n" + std::string(1 << 20, 'x')).message, HasSubstr("more than 16384"));
  EXPECT_THAT(failure_through("HTTP/1.1 200 OK\r\n\r\nmore").message, HasSubstr("more than an answer"));
  EXPECT_FALSE(failure_through("HTTP/1.1 200 OK\r\n\r\n").message.empty()) << "a tunnel to nobody is no session";
}

TEST(Tunnel, AProxyThatSaysNothing) {
  Threads threads;
  asio::ip::tcp::acceptor silent(threads.executor(), {asio::ip::address_v4::loopback(), 0});
  SessionSettings settings;
  settings.tunnel_deadline = std::chrono::milliseconds(20);
  settings.proxy = proxy_rules("http://127.0.0.1:" + std::to_string(silent.local_endpoint().port()), "").value();
  const auto session = threads.run(connect(threads.executor(), "nowhere.invalid", 1, client_tls(), settings));
  EXPECT_EQ(session.error().code, Code::kUnavailable);
  EXPECT_THAT(session.error().message, AllOf(HasSubstr("proxy 127.0.0.1:"), HasSubstr("no answer in time")));
}

TEST(Tunnel, WhoIsExceptedIsDialledDirectly) {
  Threads threads;
  TestServer server(threads);
  SessionSettings settings;
  settings.proxy = proxy_rules("http://nowhere.invalid:1", "127.0.0.0/8").value();
  const auto session = server.try_connect(settings);
  ASSERT_TRUE(session.ok()) << session.error().to_string();
  say_goodbye(threads, *session);
}

}  // namespace
}  // namespace fluvial::net

#include "core/net/greeting.h"

#include <openssl/ssl.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>
#include <string_view>
#include <utility>

#include "core/net/await_tuple.h"
#include "core/net/connector.h"
#include "core/net/hooks.h"

namespace fluvial::net {
namespace {

using Tcp = asio::ip::tcp;

constexpr unsigned char kTlsHandshakeRecord = 0x16;
constexpr std::size_t kDroppedBytesMax = 64 * 1024;  // of a client that is told why it is refused
constexpr std::string_view kHttpMethods[] = {"GET ",   "POST ",    "HEAD ",    "PUT ",   "DELETE ",
                                             "PATCH ", "OPTIONS ", "CONNECT ", "TRACE ", "PRI "};
constexpr std::string_view kHttpAnswer =
    "HTTP/1.0 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    "this port speaks TLS; it is for members of the federation\n";

bool looks_like_http(std::string_view start) {
  return std::any_of(std::begin(kHttpMethods), std::end(kHttpMethods), [start](std::string_view method) {
    const std::size_t size = std::min(start.size(), method.size());
    return start.substr(0, size) == method.substr(0, size);
  });
}

Awaitable<void> answer_http(Tcp::socket* socket) {
  co_await asio::async_write(*socket, asio::buffer(kHttpAnswer), kAwaitTuple);
  boost::system::error_code ignored;  // the peer may be gone: nothing to tell it then
  socket->shutdown(Tcp::socket::shutdown_send, ignored);
  std::array<char, 4096> dropped;
  for (std::size_t all = 0; all < kDroppedBytesMax;) {
    const auto [error, count] = co_await socket->async_read_some(asio::buffer(dropped), kAwaitTuple);
    if (error) break;
    all += count;
  }
}

// Looks at the first bytes without taking them.
Awaitable<std::optional<TlsFault>> expect_tls(Tcp::socket* socket, std::string remote) {
  const auto [wait_error] = co_await socket->async_wait(Tcp::socket::wait_read, kAwaitTuple);
  std::array<char, 8> bytes;
  boost::system::error_code error = wait_error;
  std::size_t count = 0;
  if (!error) count = socket->receive(asio::buffer(bytes), Tcp::socket::message_peek, error);
  if (error) {
    const Code code = error == asio::error::operation_aborted ? Code::kCancelled : Code::kUnavailable;
    co_return TlsFault{reason::kClosedEarly, {code, remote + ": closed before a handshake"}};
  }
  const std::string_view start(bytes.data(), count);
  if (static_cast<unsigned char>(start.front()) == kTlsHandshakeRecord) co_return std::nullopt;
  if (looks_like_http(start)) {
    co_return TlsFault{reason::kPlainHttp, {Code::kUnauthenticated, remote + ": speaks plain HTTP; this port is TLS"}};
  }
  co_return TlsFault{reason::kNotTls, {Code::kUnauthenticated, remote + ": does not speak TLS"}};
}

// On an enrolment port the server does not ask who the client is.
Result<std::optional<identity::PeerIdentity>> identify(const TlsStream& stream, bool is_server) {
  const unsigned char* alpn = nullptr;
  unsigned int size = 0;
  SSL_get0_alpn_selected(stream.native(), &alpn, &size);
  const std::string_view protocol(reinterpret_cast<const char*>(alpn), size);  // NOLINT: OpenSSL's bytes as text
  if (is_server && protocol == identity::kEnrolAlpn) return std::optional<identity::PeerIdentity>();
  FLUVIAL_ASSIGN(identity::PeerIdentity peer, identity::peer_identity(stream.native()));
  return std::optional(std::move(peer));
}

// Being cancelled is no fault of the peer: the caller knows why it cancelled.
void note(const std::shared_ptr<std::optional<TlsFault>>& fault, const TlsFault& found) {
  if (found.error.code != Code::kCancelled) *fault = found;
}

Result<std::unique_ptr<TlsStream>> make_stream(Tcp::socket socket, const identity::TlsContext& tls,
                                               std::string remote) {
  FLUVIAL_ASSIGN(identity::SslPtr ssl, tls.new_session());
  return std::make_unique<TlsStream>(std::move(socket), std::move(ssl), std::move(remote));
}

}  // namespace

Awaitable<Result<Greeted>> greet_client(Tcp::socket socket, std::shared_ptr<const identity::TlsContext> tls,
                                        std::string remote, std::shared_ptr<std::optional<TlsFault>> fault,
                                        std::function<void()> moved) {
  if (const auto no_tls = co_await expect_tls(&socket, remote)) {
    note(fault, *no_tls);
    if (no_tls->reason == reason::kPlainHttp) co_await answer_http(&socket);
    co_return no_tls->error;
  }
  FLUVIAL_CO_ASSIGN(auto stream, make_stream(std::move(socket), *tls, remote));
  auto failed = co_await stream->handshake(std::move(moved));
  if (!failed) {
    auto peer = identify(*stream, true);
    if (peer.ok()) co_return Greeted{std::move(stream), std::move(*peer)};
    failed = TlsFault{reason::kBadCertificate, peer.error()};
  }
  note(fault, *failed);
  co_await stream->finish_writing();
  co_await stream->discard_input(
      kDroppedBytesMax);  // closing at once could reset the connection before the peer has read why
  co_return failed->error;
}

Awaitable<Result<Greeted>> greet_server(Tcp::socket socket, std::shared_ptr<const identity::TlsContext> tls,
                                        std::string remote) {
  FLUVIAL_CO_ASSIGN(auto stream, make_stream(std::move(socket), *tls, std::move(remote)));
  if (auto fault = co_await stream->handshake()) co_return fault->error;
  FLUVIAL_CO_ASSIGN(auto peer, identify(*stream, false));
  co_return Greeted{std::move(stream), std::move(peer)};
}

Result<Tcp::acceptor> open_acceptor(Executor executor, const std::string& host, std::uint16_t port, int backlog) {
  const auto failed = [&](const boost::system::error_code& error) {
    return Error{Code::kUnavailable, "cannot listen on " + to_string(HostPort{host, port}) + ": " + error.message()};
  };
  boost::system::error_code error;
  Tcp::resolver resolver(executor);
  const auto found = resolver.resolve(host, std::to_string(port), Tcp::resolver::passive, error);
  if (error) return failed(error);
  const Tcp::endpoint endpoint = found.begin()->endpoint();
  Tcp::acceptor acceptor(executor);
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(Tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(backlog, error);
  if (error) return failed(error);
  return acceptor;
}

}  // namespace fluvial::net

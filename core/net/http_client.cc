// Blocking, over plain descriptors with poll(): the command line has nothing else to do while it waits.
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>

#include "core/net/client_stream.h"
#include "core/net/connector.h"
#include "core/net/http.h"

namespace fluvial::net {
namespace {

namespace http = boost::beast::http;
using ErrorCode = boost::system::error_code;
using SteadyClock = std::chrono::steady_clock;

constexpr std::size_t kReplyBodyBytesMax = 64u << 20;
constexpr std::size_t kEventBytesMax = 1 << 20;
constexpr Duration kConnectDeadline = std::chrono::seconds(5);

std::string text_of(const HttpAddress& address) {
  if (const auto* tcp = std::get_if<TcpAddress>(&address)) return to_string(HostPort{tcp->host, tcp->port});
  if (const auto* tls = std::get_if<TlsAddress>(&address)) {
    return "https://" + to_string(HostPort{tls->at.host, tls->at.port});
  }
  return std::get<UnixAddress>(address).path;
}

Error unavailable(const HttpAddress& address, const std::string& why) {
  return {Code::kUnavailable, text_of(address) + ": " + why};
}

using StreamPtr = std::unique_ptr<ClientStream>;

Result<StreamPtr> open_stream(const HttpAddress& address, const sockaddr* to, socklen_t size,
                              SteadyClock::time_point deadline) {
  const int fd = ::socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return unavailable(address, std::strerror(errno));
  auto stream = std::make_unique<ClientStream>(fd, deadline);
  if (::connect(fd, to, size) != 0) {
    if (errno != EINPROGRESS) return unavailable(address, std::strerror(errno));
    const auto until = std::min(deadline, SteadyClock::now() + kConnectDeadline);
    if (const ErrorCode error = ClientStream::wait_for(fd, POLLOUT, until))
      return unavailable(address, error.message());
    int failure = 0;
    socklen_t length = sizeof failure;
    ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &length);
    if (failure != 0) return unavailable(address, std::strerror(failure));
  }
  return stream;
}

Result<StreamPtr> open_unix_stream(const HttpAddress& address, SteadyClock::time_point deadline) {
  const std::string& path = std::get<UnixAddress>(address).path;
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  if (path.size() >= sizeof to.sun_path) return Error{Code::kInvalidArgument, path + ": too long for a socket's path"};
  std::copy(path.begin(), path.end(), to.sun_path);
  return open_stream(address, reinterpret_cast<const sockaddr*>(&to), sizeof to, deadline);  // NOLINT: POSIX
}

Result<StreamPtr> open_tcp_stream(const HttpAddress& address, SteadyClock::time_point deadline) {
  const auto* const tls = std::get_if<TlsAddress>(&address);
  const TcpAddress& tcp = tls != nullptr ? tls->at : std::get<TcpAddress>(address);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failure = ::getaddrinfo(tcp.host.c_str(), std::to_string(tcp.port).c_str(), &hints, &found);
  if (failure != 0) return unavailable(address, ::gai_strerror(failure));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, ::freeaddrinfo);
  Result<StreamPtr> stream = unavailable(address, "the name has no address");
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    stream = open_stream(address, at->ai_addr, at->ai_addrlen, deadline);
    if (stream.ok()) break;
  }
  if (stream.ok() && tls != nullptr) FLUVIAL_TRY((*stream)->shake_hands(*tls->tls, text_of(address)));
  return stream;
}

std::string host_of(const HttpAddress& address) {
  if (const auto* tls = std::get_if<TlsAddress>(&address)) return to_string(HostPort{tls->at.host, tls->at.port});
  return std::holds_alternative<UnixAddress>(address) ? "localhost" : text_of(address);
}

Result<StreamPtr> open_any_stream(const HttpAddress& address, SteadyClock::time_point deadline) {
  const bool is_unix = std::holds_alternative<UnixAddress>(address);
  return is_unix ? open_unix_stream(address, deadline) : open_tcp_stream(address, deadline);
}

Status ask(const HttpAddress& address, ClientStream& stream, std::string_view method, std::string_view target,
           std::string_view body) {
  http::request<http::span_body<const char>> request;
  request.version(11);
  request.method_string(method);
  request.target(target);
  request.set(http::field::host, host_of(address));
  request.body() = boost::beast::span<const char>(body.data(), body.size());
  request.prepare_payload();
  ErrorCode error;
  http::write(stream, request, error);
  if (error && !stream.fault()) return unavailable(address, "cannot send the request: " + error.message());
  return error ? Status(*stream.fault()) : Status();
}

Error reply_error(const HttpAddress& address, const ClientStream& stream, const ErrorCode& error) {
  if (stream.fault()) return *stream.fault();
  if (error == asio::error::timed_out) return {Code::kDeadlineExceeded, text_of(address) + ": no answer in time"};
  if (error == http::error::end_of_stream) return unavailable(address, "the server closed without an answer");
  return unavailable(address, error.message());
}

}  // namespace

struct HttpPipe::Impl {
  HttpAddress address;
  Duration deadline;
  StreamPtr stream;
  boost::beast::flat_buffer buffer = {};  // of answers that have come
};

HttpPipe::HttpPipe(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpPipe::~HttpPipe() = default;

Result<std::unique_ptr<HttpPipe>> HttpPipe::open(const HttpAddress& address, Duration deadline) {
  FLUVIAL_ASSIGN(StreamPtr stream, open_any_stream(address, SteadyClock::now() + deadline));
  return std::unique_ptr<HttpPipe>(new HttpPipe(std::make_unique<Impl>(address, deadline, std::move(stream))));
}

Status HttpPipe::send(std::string_view method, std::string_view target, std::string_view body) {
  impl_->stream->set_deadline(SteadyClock::now() + impl_->deadline);
  return ask(impl_->address, *impl_->stream, method, target, body);
}

Result<HttpReply> HttpPipe::receive() {
  impl_->stream->set_deadline(SteadyClock::now() + impl_->deadline);
  http::response_parser<http::string_body> parser;
  parser.body_limit(kReplyBodyBytesMax);
  ErrorCode error;
  http::read(*impl_->stream, impl_->buffer, parser, error);
  if (error) return reply_error(impl_->address, *impl_->stream, error);
  return HttpReply{static_cast<int>(parser.get().result_int()), std::move(parser.get().body())};
}

Result<HttpReply> http_request(const HttpAddress& address, std::string_view method, std::string_view target,
                               std::string_view body, Duration deadline) {
  FLUVIAL_ASSIGN(const std::unique_ptr<HttpPipe> pipe, HttpPipe::open(address, deadline));
  FLUVIAL_TRY(pipe->send(method, target, body));
  return pipe->receive();
}

Result<HttpReply> http_get_lines(const HttpAddress& address, std::string_view target,
                                 const std::function<bool(std::string_view line)>& on_line) {
  FLUVIAL_ASSIGN(const StreamPtr stream, open_any_stream(address, SteadyClock::time_point::max()));
  FLUVIAL_TRY(ask(address, *stream, "GET", target, ""));
  boost::beast::flat_buffer buffer;
  http::response_parser<http::buffer_body> parser;
  parser.body_limit(boost::none);
  ErrorCode error;
  http::read_header(*stream, buffer, parser, error);
  if (error) return reply_error(address, *stream, error);
  HttpReply reply{static_cast<int>(parser.get().result_int()), ""};
  const bool success = reply.status / 100 == 2;
  std::array<char, 16 * 1024> block;
  std::string text;
  while (!parser.is_done()) {
    parser.get().body().data = block.data();
    parser.get().body().size = block.size();
    http::read_some(*stream, buffer, parser, error);
    if (error && error != http::error::need_buffer) return reply_error(address, *stream, error);
    text.append(block.data(), block.size() - parser.get().body().size);
    if (text.size() > kEventBytesMax) return unavailable(address, "a line of more than 1 MiB");
    for (std::size_t end = 0; success && (end = text.find('\n')) != std::string::npos;) {
      const std::string line = text.substr(0, end);
      text.erase(0, end + 1);
      if (!on_line(line)) return reply;
    }
  }
  if (!success) reply.body = std::move(text);
  return reply;
}

}  // namespace fluvial::net

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

#include "core/net/connector.h"
#include "core/net/http.h"

namespace fluvial::net {
namespace {

namespace http = boost::beast::http;
using ErrorCode = boost::system::error_code;
using SteadyClock = std::chrono::steady_clock;

constexpr std::size_t kReplyBodyBytesMax = 64u << 20;
constexpr std::size_t kLineBytesMax = 1 << 20;
constexpr Duration kConnectDeadline = std::chrono::seconds(5);

ErrorCode last_error() { return {errno, boost::system::system_category()}; }

ErrorCode wait_for(int fd, short events, SteadyClock::time_point deadline) {
  for (;;) {
    int wait_ms = -1;
    if (deadline != SteadyClock::time_point::max()) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyClock::now()).count();
      if (left <= 0) return asio::error::timed_out;
      wait_ms = static_cast<int>(std::min<std::int64_t>(left, 60'000));
    }
    pollfd waiting{.fd = fd, .events = events, .revents = 0};
    const int ready = ::poll(&waiting, 1, wait_ms);
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return last_error();
  }
}

// What Beast calls a SyncStream, with a deadline over all of it.
class ClientStream {
 public:
  ClientStream(int fd, SteadyClock::time_point deadline) : fd_(fd), deadline_(deadline) {}
  ClientStream(const ClientStream&) = delete;
  ClientStream& operator=(const ClientStream&) = delete;
  ~ClientStream() { ::close(fd_); }

  template <typename Buffers>
  std::size_t read_some(const Buffers& buffers, ErrorCode& error) {
    const asio::mutable_buffer to = *asio::buffer_sequence_begin(buffers);
    return transfer(POLLIN, error, [&] { return ::recv(fd_, to.data(), to.size(), 0); }, asio::error::eof);
  }
  template <typename Buffers>
  std::size_t write_some(const Buffers& buffers, ErrorCode& error) {
    for (auto at = asio::buffer_sequence_begin(buffers); at != asio::buffer_sequence_end(buffers); ++at) {
      const asio::const_buffer from = *at;
      if (from.size() == 0) continue;
      return transfer(POLLOUT, error, [&] { return ::send(fd_, from.data(), from.size(), MSG_NOSIGNAL); }, ErrorCode());
    }
    error = {};
    return 0;
  }
  // Beast asks for these too; nothing here calls them.
  template <typename Buffers>
  std::size_t read_some(const Buffers& buffers);
  template <typename Buffers>
  std::size_t write_some(const Buffers& buffers);

 private:
  template <typename Call>
  std::size_t transfer(short events, ErrorCode& error, Call call, ErrorCode at_zero) {
    for (;;) {
      const ssize_t count = call();
      if (count >= 0) {
        error = count == 0 ? at_zero : ErrorCode();
        return static_cast<std::size_t>(count);
      }
      if (errno == EINTR) continue;
      error = errno == EAGAIN || errno == EWOULDBLOCK ? wait_for(fd_, events, deadline_) : last_error();
      if (error) return 0;
    }
  }
  const int fd_;
  const SteadyClock::time_point deadline_;
};

std::string describe(const HttpAddress& address) {
  if (const auto* tcp = std::get_if<TcpAddress>(&address)) return to_string(HostPort{tcp->host, tcp->port});
  return std::get<UnixAddress>(address).path;
}

Error unavailable(const HttpAddress& address, const std::string& why) {
  return {Code::kUnavailable, describe(address) + ": " + why};
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
    if (const ErrorCode error = wait_for(fd, POLLOUT, until)) return unavailable(address, error.message());
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
  const auto& tcp = std::get<TcpAddress>(address);
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
  return stream;
}

Result<StreamPtr> open_and_ask(const HttpAddress& address, std::string_view method, std::string_view target,
                               std::string_view body, SteadyClock::time_point deadline) {
  const bool is_unix = std::holds_alternative<UnixAddress>(address);
  FLUVIAL_ASSIGN(StreamPtr stream, is_unix ? open_unix_stream(address, deadline) : open_tcp_stream(address, deadline));
  http::request<http::string_body> request;
  request.version(11);
  request.method_string(method);
  request.target(target);
  request.set(http::field::host, is_unix ? "localhost" : describe(address));
  request.keep_alive(false);
  request.body() = std::string(body);
  request.prepare_payload();
  ErrorCode error;
  http::write(*stream, request, error);
  if (error) return unavailable(address, "cannot send the request: " + error.message());
  return stream;
}

Error reply_error(const HttpAddress& address, const ErrorCode& error) {
  if (error == asio::error::timed_out) return {Code::kDeadlineExceeded, describe(address) + ": no answer in time"};
  if (error == http::error::end_of_stream) return unavailable(address, "the server closed without an answer");
  return unavailable(address, error.message());
}

}  // namespace

Result<HttpReply> http_request(const HttpAddress& address, std::string_view method, std::string_view target,
                               std::string_view body, Duration deadline) {
  FLUVIAL_ASSIGN(const StreamPtr stream, open_and_ask(address, method, target, body, SteadyClock::now() + deadline));
  boost::beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  parser.body_limit(kReplyBodyBytesMax);
  ErrorCode error;
  http::read(*stream, buffer, parser, error);
  if (error) return reply_error(address, error);
  return HttpReply{static_cast<int>(parser.get().result_int()), std::move(parser.get().body())};
}

Result<HttpReply> http_get_lines(const HttpAddress& address, std::string_view target,
                                 const std::function<bool(std::string_view line)>& on_line) {
  FLUVIAL_ASSIGN(const StreamPtr stream, open_and_ask(address, "GET", target, "", SteadyClock::time_point::max()));
  boost::beast::flat_buffer buffer;
  http::response_parser<http::buffer_body> parser;
  parser.body_limit(boost::none);
  ErrorCode error;
  http::read_header(*stream, buffer, parser, error);
  if (error) return reply_error(address, error);
  HttpReply reply{static_cast<int>(parser.get().result_int()), ""};
  const bool success = reply.status / 100 == 2;
  std::array<char, 16 * 1024> block;
  std::string text;
  while (!parser.is_done()) {
    parser.get().body().data = block.data();
    parser.get().body().size = block.size();
    http::read_some(*stream, buffer, parser, error);
    if (error && error != http::error::need_buffer) return reply_error(address, error);
    text.append(block.data(), block.size() - parser.get().body().size);
    if (text.size() > kLineBytesMax) return unavailable(address, "a line of more than 1 MiB");
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

#include "tests/attack/attacker.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <vector>

#include "core/wire/frame.h"
#include "core/wire/mapping.h"
#include "core/wire/protocol.h"

namespace fluvial::attack {
namespace {

Error system_error(const char* doing) {
  const bool waited = errno == EAGAIN || errno == EWOULDBLOCK;
  return {waited ? Code::kDeadlineExceeded : Code::kUnavailable, fmt::format("{}: {}", doing, std::strerror(errno))};
}

sockaddr_in address_of(const std::string& host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  ::inet_pton(AF_INET, host.c_str(), &address.sin_addr);
  return address;
}

const sockaddr* as_sockaddr(const sockaddr_in& address) {
  return reinterpret_cast<const sockaddr*>(&address);  // NOLINT: as the sockets want it
}

void set_limit(int fd, int which, std::chrono::milliseconds patience) {
  timeval limit{};
  limit.tv_sec = patience.count() / 1000;
  limit.tv_usec = patience.count() % 1000 * 1000;
  ::setsockopt(fd, SOL_SOCKET, which, &limit, sizeof limit);
}

void set_limits(int fd) {
  set_limit(fd, SO_RCVTIMEO, kPatience);
  set_limit(fd, SO_SNDTIMEO, kPatience);
}

bool is_readable(int fd) {
  pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
  return ::poll(&ready, 1, 0) > 0;
}

}  // namespace

Result<Connection> Connection::open(std::uint16_t port, const std::string& from) {
  local::UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return system_error("socket");
  set_limits(socket.get());
  const int without_port = 1;  // it is chosen by connect(), and one is free as long as the pair is
  ::setsockopt(socket.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &without_port, sizeof without_port);
  const sockaddr_in source = address_of(from, 0);
  const sockaddr_in target = address_of(kMembersAddress, port);
  if (::bind(socket.get(), as_sockaddr(source), sizeof source) != 0) return system_error("bind");
  if (::connect(socket.get(), as_sockaddr(target), sizeof target) != 0) return system_error("connect");
  return Connection(std::move(socket));
}

Result<Connection> Connection::open(std::uint16_t port, const Tls& tls, const std::string& from) {
  FLUVIAL_ASSIGN(Connection connection, open(port, from));
  FLUVIAL_TRY(connection.shake_hands(tls));
  return connection;
}

Result<Connection> Connection::accept(local::UniqueFd socket, const Tls& tls) {
  set_limits(socket.get());
  Connection connection(std::move(socket));
  FLUVIAL_TRY(connection.shake_hands(tls));
  return connection;
}

Status Connection::shake_hands(const Tls& tls) {
  std::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to sockets without MSG_NOSIGNAL
  FLUVIAL_ASSIGN(ssl_, tls->new_session());
  SSL_set_fd(ssl_.get(), socket_.get());
  ERR_clear_error();
  const int result = tls->is_server() ? SSL_accept(ssl_.get()) : SSL_connect(ssl_.get());
  return result == 1 ? Status() : fault(result, "the handshake");
}

Status Connection::fault(int result, const char* doing) const {
  const int why = SSL_get_error(ssl_.get(), result);
  if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) {
    return Error{Code::kDeadlineExceeded, fmt::format("{}: nothing moved", doing)};
  }
  if (why == SSL_ERROR_ZERO_RETURN)
    return Error{Code::kUnavailable, fmt::format("{}: the other side has ended", doing)};
  const unsigned long code = ERR_get_error();
  std::array<char, 256> text{};
  ERR_error_string_n(code, text.data(), text.size());
  return Error{Code::kUnavailable, fmt::format("{}: {}", doing, code == 0 ? std::strerror(errno) : text.data())};
}

Status Connection::write(ByteSpan bytes) {
  while (!bytes.empty()) {
    std::size_t count = 0;
    if (ssl_ != nullptr) {
      ERR_clear_error();
      const int result = SSL_write_ex(ssl_.get(), bytes.data(), bytes.size(), &count);
      if (result != 1) return fault(result, "writing");
    } else {
      const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0) return system_error("writing");
      count = static_cast<std::size_t>(sent);
    }
    bytes = bytes.subspan(count);
  }
  return {};
}

Status Connection::send(const v1::Envelope& message, ByteSpan payload) {
  FLUVIAL_TRY(send_head(message, static_cast<std::uint32_t>(payload.size())));
  return write(payload);
}

Status Connection::send_head(const v1::Envelope& message, std::uint32_t payload_bytes_announced) {
  FLUVIAL_ASSIGN(const Buffer head, wire::encode_head(message, payload_bytes_announced, {}));
  return write(head.span());
}

Status Connection::announce(std::uint32_t header_bytes, std::uint32_t payload_bytes) {
  std::array<std::byte, wire::kPrefixBytes> prefix{};
  wire::encode_prefix({header_bytes, payload_bytes}, prefix);
  return write(prefix);
}

Status Connection::update_key() {
  ERR_clear_error();
  if (SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_REQUESTED) != 1) return fault(0, "a key update");
  if (const int result = SSL_do_handshake(ssl_.get()); result != 1) return fault(result, "a key update");
  if (has_ended()) return Error{Code::kUnavailable, "the other side has ended"};
  return {};
}

Status Connection::read(MutableByteSpan out) {
  while (!out.empty()) {
    std::size_t count = 0;
    if (ssl_ != nullptr) {
      ERR_clear_error();
      const int result = SSL_read_ex(ssl_.get(), out.data(), out.size(), &count);
      if (result != 1) return fault(result, "reading");
    } else {
      const ssize_t got = ::recv(socket_.get(), out.data(), out.size(), 0);
      if (got < 0) return system_error("reading");
      if (got == 0) return Error{Code::kUnavailable, "the other side has ended"};
      count = static_cast<std::size_t>(got);
    }
    out = out.subspan(count);
  }
  return {};
}

Result<v1::Envelope> Connection::receive(std::chrono::milliseconds patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  set_limit(socket_.get(), SO_RCVTIMEO, patience);
  while (std::chrono::steady_clock::now() < until) {
    std::array<std::byte, wire::kPrefixBytes> bytes;
    FLUVIAL_TRY(read(bytes));
    FLUVIAL_ASSIGN(const wire::FramePrefix prefix, wire::decode_prefix(bytes, {}));
    Buffer header(prefix.header_bytes);
    FLUVIAL_TRY(read(header.span()));
    Buffer payload(prefix.payload_bytes);
    FLUVIAL_TRY(read(payload.span()));
    FLUVIAL_ASSIGN(v1::Envelope message, wire::parse_header(header.span()));
    if (message.has_ping() || message.has_pong()) continue;
    if (message.has_goodbye() && message.goodbye().code() == 0) {
      return Error{Code::kUnavailable, message.goodbye().message()};
    }
    if (message.has_goodbye()) return wire::error_from_proto(message.goodbye().code(), message.goodbye().message());
    return message;
  }
  return Error{Code::kDeadlineExceeded, "nothing but pings"};
}

std::optional<Error> Connection::ending(std::chrono::milliseconds patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    if (left.count() <= 0) return std::nullopt;
    const Result<v1::Envelope> message = receive(left);
    if (message.ok()) continue;
    if (message.error().code == Code::kDeadlineExceeded) {  // a Goodbye of that code, or still open
      if (has_ended()) return message.error();
      continue;
    }
    return message.error();
  }
}

void Connection::set_patience(std::chrono::milliseconds patience) { set_limit(socket_.get(), SO_SNDTIMEO, patience); }

bool Connection::has_ended() {
  std::array<std::byte, 16 * 1024> dropped;
  while (is_readable(socket_.get())) {
    if (ssl_ != nullptr) {
      std::size_t count = 0;
      ERR_clear_error();
      SSL_clear_mode(ssl_.get(), SSL_MODE_AUTO_RETRY);  // a KeyUpdate alone: do not wait for what may follow
      const int result = SSL_read_ex(ssl_.get(), dropped.data(), dropped.size(), &count);
      const int why = SSL_get_error(ssl_.get(), result);
      SSL_set_mode(ssl_.get(), SSL_MODE_AUTO_RETRY);
      if (result == 1 || why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) continue;
      return true;
    }
    const ssize_t got = ::recv(socket_.get(), dropped.data(), dropped.size(), MSG_DONTWAIT);
    if (got == 0) return true;
    if (got < 0) return errno != EAGAIN;
  }
  return false;
}

// ---- a hostile parent ----------------------------------------------------------------------------------------------

HostileParent::HostileParent(Tls tls, Script script)
    : tls_(std::move(tls)), script_(std::move(script)), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address = address_of(kMembersAddress, 0);
  socklen_t size = sizeof address;
  ::bind(listener_.get(), as_sockaddr(address), sizeof address);
  ::listen(listener_.get(), 64);
  ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);  // NOLINT: as above
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { run(); });
}

HostileParent::~HostileParent() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    ::shutdown(listener_.get(), SHUT_RDWR);
    for (const int fd : open_) ::shutdown(fd, SHUT_RDWR);
  }
  thread_.join();
  for (std::thread& serving : serving_) serving.join();
}

void HostileParent::run() {
  for (;;) {
    local::UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const std::lock_guard lock(mutex_);
    if (stopping_ || !socket.valid()) return;
    open_.push_back(socket.get());
    serving_.emplace_back(
        [this, moved = std::make_shared<local::UniqueFd>(std::move(socket))] { serve(std::move(*moved)); });
  }
}

void HostileParent::serve(local::UniqueFd socket) {
  bool said_hello = false;
  Result<Connection> child = Connection::accept(local::UniqueFd(::dup(socket.get())), tls_);
  if (child.ok()) {
    const Result<v1::Envelope> first = child->receive();
    said_hello = first.ok() && first->has_hello();
    if (said_hello) script_(*child, first->hello());
  }
  child = Error{Code::kCancelled, "it is over"};
  ::shutdown(socket.get(), SHUT_RDWR);
  const std::lock_guard lock(mutex_);
  open_.remove(socket.get());
  ++visits_;
  if (said_hello) ++greeted_;
  changed_.notify_all();
}

bool HostileParent::wait_visits(std::size_t count) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kPatience, [&] { return visits_ >= count; });
}

std::size_t HostileParent::greeted() const {
  const std::lock_guard lock(mutex_);
  return greeted_;
}

// ---- messages ------------------------------------------------------------------------------------------------------

v1::Envelope hello(std::uint64_t lease_epoch) {
  const wire::Protocols protocols;
  v1::Envelope message;
  message.mutable_hello()->set_protocol_min(protocols.oldest);
  message.mutable_hello()->set_protocol_max(protocols.newest);
  message.mutable_hello()->set_software("an attacker");
  message.mutable_hello()->set_incarnation(1'000'000);  // newer than the owner's
  message.mutable_hello()->set_lease_epoch(lease_epoch);
  return message;
}

v1::Envelope lease_request(const std::string& advertise) {
  v1::Envelope message;
  message.mutable_lease_request()->mutable_standing();
  message.mutable_lease_request()->set_shows_lease(true);
  message.mutable_lease_request()->set_process(66);  // another than the machine that has the same identity
  message.mutable_lease_request()->set_advertise(advertise);
  return message;
}

v1::Envelope welcome() {
  v1::Envelope message;
  message.mutable_welcome()->set_protocol(wire::Protocols().newest);
  message.mutable_welcome()->set_software("an attacker");
  return message;
}

}  // namespace fluvial::attack

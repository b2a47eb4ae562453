#include "tests/integration/connect_proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

#include "core/base/check.h"

namespace fluvial::integration {
namespace {

constexpr std::size_t kRequestBytesMax = 8 << 10;

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

bool send_all(int fd, const char* bytes, std::size_t size) {
  while (size > 0) {
    const ssize_t sent = ::send(fd, bytes, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes += sent;
    size -= static_cast<std::size_t>(sent);
  }
  return true;
}

// What there is now, from one to the other; false: nothing more comes.
bool forward(int from, int to) {
  std::array<char, 64 << 10> block;
  const ssize_t count = ::recv(from, block.data(), block.size(), 0);
  if (count < 0 && errno == EINTR) return true;
  return count > 0 && send_all(to, block.data(), static_cast<std::size_t>(count));
}

void join_ends(int client, int peer) {
  std::array<pollfd, 2> ends = {{{client, POLLIN, 0}, {peer, POLLIN, 0}}};
  while (ends[0].fd >= 0 || ends[1].fd >= 0) {
    if (::poll(ends.data(), ends.size(), -1) < 0 && errno != EINTR) return;
    for (std::size_t i = 0; i < ends.size(); ++i) {
      if (ends[i].fd < 0 || (ends[i].revents & (POLLIN | POLLHUP | POLLERR)) == 0) continue;
      const int to = i == 0 ? peer : client;
      if (forward(ends[i].fd, to)) continue;
      ::shutdown(to, SHUT_WR);
      ends[i].fd = -1;
    }
  }
}

}  // namespace

ConnectProxy::ConnectProxy(std::string credentials)
    : credentials_(std::move(credentials)), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof address;
  const bool listens = ::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                       ::listen(listener_.get(), 64) == 0 &&
                       ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0;
  FLUVIAL_CHECK(listens, "a port on the loopback can be had");
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { accept_all(); });
}

ConnectProxy::~ConnectProxy() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    ::shutdown(listener_.get(), SHUT_RDWR);
    for (Connection& connection : connections_) {
      ::shutdown(connection.client.get(), SHUT_RDWR);
      if (connection.peer.valid()) ::shutdown(connection.peer.get(), SHUT_RDWR);
    }
  }
  thread_.join();
  for (Connection& connection : connections_) connection.thread.join();
}

void ConnectProxy::route(const std::string& host, bool open) {
  const std::lock_guard lock(mutex_);
  routes_[host] = open;
}

std::vector<std::string> ConnectProxy::opened() const {
  const std::lock_guard lock(mutex_);
  return opened_;
}

void ConnectProxy::accept_all() {
  for (;;) {
    local::UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    if (!client.valid()) continue;
    Connection& connection = connections_.emplace_back();
    connection.client = std::move(client);
    connection.thread = std::thread([this, &connection] { serve(&connection); });
  }
}

void ConnectProxy::serve(Connection* connection) {
  std::string request;
  while (request.find("\r\n\r\n") == std::string::npos && request.size() < kRequestBytesMax) {
    char byte = 0;
    if (::recv(connection->client.get(), &byte, 1, 0) != 1) return;
    request += byte;
  }
  const std::string answer = answer_to(request, connection) + "\r\n\r\n";
  const bool told = send_all(connection->client.get(), answer.data(), answer.size());
  if (told && connection->peer.valid()) join_ends(connection->client.get(), connection->peer.get());
  ::shutdown(connection->client.get(), SHUT_RDWR);
}

std::string ConnectProxy::answer_to(const std::string& request, Connection* connection) {
  if (!credentials_.empty() &&
      request.find("\r\nProxy-Authorization: Basic " + credentials_ + "\r\n") == std::string::npos) {
    return "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"site\"";
  }
  constexpr std::string_view kMethod = "CONNECT ";
  const std::size_t end = request.find(" HTTP/1.1\r\n");
  if (!request.starts_with(kMethod) || end == std::string::npos) return "HTTP/1.1 405 Method Not Allowed";
  const std::string target = request.substr(kMethod.size(), end - kMethod.size());
  const std::size_t colon = target.rfind(':');
  const std::lock_guard lock(mutex_);
  const auto found = routes_.find(target.substr(0, colon));
  if (found == routes_.end()) return "HTTP/1.1 502 Bad Gateway";
  if (!found->second || stopping_) return "HTTP/1.1 403 Forbidden";
  const sockaddr_in address = loopback(static_cast<std::uint16_t>(std::stoi(target.substr(colon + 1))));
  local::UniqueFd peer(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(peer.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return "HTTP/1.1 503 Service Unavailable";
  }
  connection->peer = std::move(peer);
  opened_.push_back(target);
  return "HTTP/1.1 200 Connection established";
}

}  // namespace fluvial::integration

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/dispatch.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/net/await_tuple.h"
#include "core/net/deadline.h"
#include "core/net/greeting.h"
#include "core/net/http.h"
#include "core/net/http_connection.h"
#include "core/net/http_places.h"
#include "core/net/run_on.h"
#include "core/net/task_group.h"

namespace fluvial::net {
namespace {

using Tcp = asio::ip::tcp;
using Local = asio::local::stream_protocol;
using ErrorCode = boost::system::error_code;

constexpr Duration kPauseOutOfFiles = std::chrono::milliseconds(100);

Error cannot_listen(const std::string& path, const std::string& why) {
  return {Code::kUnavailable, "cannot listen on " + path + ": " + why};
}

// Removes the file of a server that is no more.
Status clear_stale_socket(const Executor& executor, const std::string& path) {
  struct stat found{};
  if (::lstat(path.c_str(), &found) != 0) {
    return errno == ENOENT ? Status() : cannot_listen(path, std::strerror(errno));
  }
  if (!S_ISSOCK(found.st_mode)) return cannot_listen(path, "a file that is no socket stands there");
  Local::socket probe(executor);
  ErrorCode error;
  probe.connect(Local::endpoint(path), error);
  if (!error) return cannot_listen(path, "another process listens there");
  if (error != asio::error::connection_refused) return cannot_listen(path, error.message());
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return cannot_listen(path, std::strerror(errno));
  return {};
}

Result<Local::acceptor> open_unix(const Executor& executor, const UnixAddress& address, int backlog) {
  const std::string& path = address.path;
  if (path.empty() || path.size() > 107) return cannot_listen(path, "a socket's path has 1 to 107 bytes");
  FLUVIAL_TRY(clear_stale_socket(executor, path));
  Local::acceptor acceptor(executor);
  ErrorCode error;
  acceptor.open(Local(), error);
  // On Linux the file takes its mode from the socket: there is no moment in which others may connect.
  if (!error && ::fchmod(acceptor.native_handle(), address.mode) != 0) return cannot_listen(path, std::strerror(errno));
  if (!error) acceptor.bind(Local::endpoint(path), error);
  // The process' umask has a say in what the file got: what more it is to have, it gets now.
  if (!error && ::chmod(path.c_str(), address.mode) != 0) return cannot_listen(path, std::strerror(errno));
  if (!error) acceptor.listen(backlog, error);
  if (error) return cannot_listen(path, error.message());
  return acceptor;
}

std::string remote_of(const Tcp::socket& socket) {
  ErrorCode error;
  const Tcp::endpoint endpoint = socket.remote_endpoint(error);
  return error ? "a client that left" : describe(endpoint);
}
std::string remote_of(const Local::socket&) { return "unix"; }

std::optional<UnixPeer> peer_of(Tcp::socket&) { return std::nullopt; }
std::optional<UnixPeer> peer_of(Local::socket& socket) {
  ucred known{};
  socklen_t size = sizeof known;
  if (::getsockopt(socket.native_handle(), SOL_SOCKET, SO_PEERCRED, &known, &size) != 0) return std::nullopt;
  UnixPeer peer{known.uid, known.gid, known.pid, {}};
  std::vector<gid_t> groups(64);
  for (;;) {
    size = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
    if (::getsockopt(socket.native_handle(), SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size) == 0) break;
    if (errno != ERANGE) return peer;  // a kernel before 4.13
    groups.resize(size / sizeof(gid_t));
  }
  groups.resize(size / sizeof(gid_t));
  peer.groups.assign(groups.begin(), groups.end());
  return peer;
}

}  // namespace

class HttpServer::Impl : public std::enable_shared_from_this<HttpServer::Impl> {
 public:
  using Acceptor = std::variant<Tcp::acceptor, Local::acceptor>;
  struct Known {
    std::weak_ptr<HttpConnection> connection;
    AddressKey whose;
  };

  Impl(Executor executor, Executor strand, Acceptor acceptor, std::string socket_path, HttpSettings settings,
       std::shared_ptr<NetHooks> hooks)
      : executor_(executor),
        strand_(strand),
        acceptor_(std::move(acceptor)),
        pause_(strand),
        socket_path_(std::move(socket_path)),
        settings_(settings),
        hooks_(hooks ? std::move(hooks) : std::make_shared<NetHooks>()),
        connections_(executor, [hooks = hooks_](const std::string& remote, const std::string& what) {
          hooks->handler_failed(remote, what);
        }) {
    if (const auto* tcp = std::get_if<Tcp::acceptor>(&acceptor_)) port_ = tcp->local_endpoint().port();
  }

  static Awaitable<void> run(std::shared_ptr<Impl> self, Handler handler) {
    self->handler_ = std::move(handler);
    co_await run_on(self->strand_, accept_all(self));
    self->stop_connections();
    const Status ended = co_await with_deadline(self->connections_.join(), self->settings_.stop_deadline);
    if (ended.ok()) co_return;
    self->connections_.cancel();
    co_await self->connections_.join();
  }

  void stop() {
    asio::dispatch(strand_, [self = shared_from_this()] {
      if (std::exchange(self->stopping_, true)) return;
      ErrorCode ignored;  // closing what is closed is fine
      std::visit([&ignored](auto& acceptor) { acceptor.close(ignored); }, self->acceptor_);
      self->pause_.cancel();
      if (!self->socket_path_.empty()) ::unlink(self->socket_path_.c_str());
    });
  }

  std::uint16_t port() const { return port_; }

 private:
  static Awaitable<void> accept_all(std::shared_ptr<Impl> self) {
    while (!self->stopping_) {
      const ErrorCode error =
          self->acceptor_.index() == 0 ? co_await accept_one<Tcp>(self) : co_await accept_one<Local>(self);
      if (self->stopping_ || !error || error == asio::error::connection_aborted) continue;
      self->hooks_->accept_failed(error.message());
      self->pause_.expires_after(kPauseOutOfFiles);
      co_await self->pause_.async_wait(kAwaitTuple);
    }
  }

  template <typename Protocol>
  static Awaitable<ErrorCode> accept_one(std::shared_ptr<Impl> self) {
    typename Protocol::socket socket{Executor(asio::make_strand(self->executor_))};
    auto& acceptor = std::get<typename Protocol::acceptor>(self->acceptor_);
    const auto [error] = co_await acceptor.async_accept(socket, kAwaitTuple);
    if (error || self->stopping_) co_return error;
    HttpConnection::From from{remote_of(socket), peer_of(socket)};
    const AddressKey whose = from.peer ? AddressKey{false, from.peer->uid} : address_key(from.remote);
    if (!self->make_room(whose)) {
      self->hooks_->refused(reason::kTooManySessions, from.remote, from.remote + ": too many HTTP connections");
      co_return error;
    }
    auto connection =
        std::make_shared<HttpConnection>(HttpConnection::Socket(std::move(socket)), std::move(from), self->settings_);
    {
      const std::lock_guard lock(self->mutex_);
      self->known_.push_back({connection, whose});
    }
    self->connections_.spawn(connection->executor(), connection->remote(),
                             serve_http(connection, self->handler_, self->hooks_));
    co_return error;
  }

  // False: nobody gives way, or those who were sent away are still here in numbers.
  bool make_room(const AddressKey& newcomer) {
    const std::lock_guard lock(mutex_);
    std::erase_if(known_, [](const Known& known) { return known.connection.expired(); });
    if (known_.size() < settings_.connections_max) return true;
    if (connections_.size() >= 2 * settings_.connections_max) return false;
    std::vector<HttpPlace> places;
    std::vector<std::shared_ptr<HttpConnection>> connections;
    for (const Known& known : known_) {
      connections.push_back(known.connection.lock());
      const auto& connection = connections.back();  // none: it has ended just now
      places.push_back({known.whose, connection == nullptr ? std::optional(TimePoint()) : connection->still_since()});
    }
    const std::optional<std::size_t> goes = who_gives_way(places, newcomer);
    if (!goes) return false;
    if (connections[*goes] != nullptr) send_away(*connections[*goes], places[*goes].still_since.has_value());
    known_.erase(known_.begin() + static_cast<std::ptrdiff_t>(*goes));
    return true;
  }

  void send_away(HttpConnection& connection, bool is_still) {
    const char* why = is_still ? ": an HTTP connection that asked nothing, or took no answer, gave way to a newcomer"
                               : ": one of too many HTTP connections gave way to somebody else's";
    hooks_->refused(reason::kGaveWay, connection.remote(), connection.remote() + why);
    if (is_still) {
      connection.give_way();
    } else {
      connection.end();
    }
  }

  void stop_connections() {
    const std::lock_guard lock(mutex_);
    for (const Known& known : known_) {
      if (const auto connection = known.connection.lock()) connection->stop();
    }
  }

  const Executor executor_;
  const Executor strand_;
  Acceptor acceptor_;  // with pause_ and stopping_ on strand_
  asio::steady_timer pause_;
  bool stopping_ = false;
  const std::string socket_path_;
  const HttpSettings settings_;
  const std::shared_ptr<NetHooks> hooks_;
  Handler handler_;
  TaskGroup connections_;
  std::uint16_t port_ = 0;
  std::mutex mutex_;
  std::vector<Known> known_;  // but for those who were sent away; the oldest first
};

Result<std::shared_ptr<HttpServer>> HttpServer::open(Executor executor, HttpAddress address, HttpSettings settings,
                                                     std::shared_ptr<NetHooks> hooks) {
  constexpr int kBacklog = 128;
  const Executor strand = asio::make_strand(executor);
  std::optional<Impl::Acceptor> acceptor;
  std::string path;
  if (const auto* tcp = std::get_if<TcpAddress>(&address)) {
    FLUVIAL_ASSIGN(acceptor, open_acceptor(strand, tcp->host, tcp->port, kBacklog));
  } else {
    FLUVIAL_CHECK(std::holds_alternative<UnixAddress>(address), "TLS is served by an HttpsServer");
    const auto& at = std::get<UnixAddress>(address);
    path = at.path;
    FLUVIAL_ASSIGN(acceptor, open_unix(strand, at, kBacklog));
  }
  return std::shared_ptr<HttpServer>(new HttpServer(std::make_shared<Impl>(
      std::move(executor), strand, std::move(*acceptor), std::move(path), settings, std::move(hooks))));
}

HttpServer::HttpServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() { impl_->stop(); }
Awaitable<void> HttpServer::run(Handler handler) { return Impl::run(impl_, std::move(handler)); }
void HttpServer::stop() { impl_->stop(); }
std::uint16_t HttpServer::port() const { return impl_->port(); }

}  // namespace fluvial::net

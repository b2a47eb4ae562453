#include "core/net/https.h"

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <mutex>
#include <utility>
#include <vector>

#include "core/net/await_tuple.h"
#include "core/net/deadline.h"
#include "core/net/front_door.h"
#include "core/net/http_connection.h"
#include "core/net/task_group.h"
#include "core/net/tls_bridge.h"

namespace fluvial::net {
namespace {

using Tcp = asio::ip::tcp;
using ErrorCode = boost::system::error_code;

constexpr std::size_t kUnreadBytesMax = 64 * 1024;
constexpr int kBacklog = 256;

// Ends with the whole of it read by the client: whoever is refused learns why.
Awaitable<Status> tell(TlsStream* stream, Error why) {
  const HttpResponse answer = HttpResponse::from_error(why);
  const std::string text =
      "HTTP/1.1 " + std::to_string(answer.status) + " Refused\r\nContent-Type: " + answer.content_type +
      "\r\nContent-Length: " + std::to_string(answer.body.size()) + "\r\nConnection: close\r\n\r\n" + answer.body;
  FLUVIAL_CO_TRY(co_await stream->write(as_byte_span(text)));
  co_await stream->finish_writing();
  co_await stream->discard_input(kUnreadBytesMax);
  co_return Status{};
}

// A wall clock's time as a wait from now; none longer than a day, after which it is looked at again.
Duration until(WallTime end, WallTime now) {
  const auto left = std::chrono::duration_cast<Duration>(
      std::clamp<std::chrono::milliseconds>(end - now, std::chrono::milliseconds(0), std::chrono::days(1)));
  return left;
}

}  // namespace

class HttpsServer::Impl {
 public:
  Impl(Executor executor, Tcp::acceptor acceptor, Tls tls, HttpsSettings settings, std::shared_ptr<NetHooks> hooks,
       Admission admission)
      : tls_(std::move(tls)),
        settings_(settings),
        hooks_(hooks ? std::move(hooks) : std::make_shared<NetHooks>()),
        admission_(std::move(admission)),
        connections_(executor, told_to(hooks_)),
        door_(std::make_shared<FrontDoor>(
            executor, std::move(acceptor),
            FrontDoor::Settings{settings_.accepts_per_s, settings_.accepts_burst, settings_.strangers_max,
                                settings_.strangers_per_address_max, settings_.handshake_deadline, settings_.clock},
            hooks_)) {}

  static Awaitable<void> run(std::shared_ptr<Impl> self, HttpServer::Handler handler) {
    self->handler_ = std::move(handler);
    FrontDoor::Host host;
    host.tls = self->tls_;
    host.has_room = [](std::size_t) { return true; };  // said once its owner is known (admit)
    host.came = [self](FrontDoor::Guest guest) { return came(self, std::move(guest)); };
    co_await FrontDoor::run(self->door_, std::move(host));
    self->for_each_client([](Client& client) { client.http->stop(); });
    const Status ended = co_await with_deadline(self->connections_.join(), self->settings_.http.stop_deadline);
    if (ended.ok()) co_return;
    self->for_each_client([](Client& client) { client.bridge->cut(); });
    self->connections_.cancel();
    co_await self->connections_.join();
  }

  void stop() { door_->stop(); }

  void admit_again() {
    for_each_client([this](Client& client) {
      const Status admitted = admission_(client.who);
      if (admitted.ok()) return;
      hooks_->refused(reason::kNotAdmitted, client.http->remote(),
                      client.http->remote() + ": " + admitted.error().message + "; its connection ends");
      client.bridge->cut();
    });
  }

  std::uint16_t port() const { return door_->port(); }

 private:
  struct Client {
    identity::PeerIdentity who;
    std::shared_ptr<TlsBridge> bridge;
    std::shared_ptr<HttpConnection> http;
    asio::steady_timer ended;  // with over on its strand
    bool over = false;
  };

  template <typename Act>
  void for_each_client(const Act& act) {
    const std::lock_guard lock(mutex_);
    for (const std::weak_ptr<Client>& known : clients_) {
      if (const auto client = known.lock()) act(*client);
    }
  }

  static Awaitable<void> came(std::shared_ptr<Impl> self, FrontDoor::Guest guest) {
    const std::string& remote = guest.stranger->remote;
    const Status admitted = self->admit(guest.greeted, remote);
    if (!admitted.ok()) {
      const Status told = co_await with_deadline(tell(guest.greeted.stream.get(), admitted.error()),
                                                 self->settings_.handshake_deadline);
      (void)told;  // the connection ends either way
      co_return;
    }
    self->connections_.spawn(guest.stranger->strand, remote, serve(self, std::move(guest.greeted), remote));
  }

  Status admit(const Greeted& greeted, const std::string& remote) {
    if (!greeted.peer) return Error{Code::kUnauthenticated, "no certificate"};
    const Status admitted = admission_(*greeted.peer);
    if (!admitted.ok()) {
      hooks_->refused(reason::kNotAdmitted, remote, remote + ": " + admitted.error().message);
      return admitted;
    }
    std::size_t of_client = 0;
    std::size_t all = 0;
    for_each_client([&](const Client& client) {
      ++all;
      of_client += client.who.node == greeted.peer->node ? 1 : 0;
    });
    if (of_client < settings_.connections_per_client_max && all < settings_.http.connections_max) return {};
    const bool own = of_client >= settings_.connections_per_client_max;
    const Error full{Code::kResourceExhausted,
                     own ? "too many connections of " + greeted.peer->name + " at once: end some of them"
                         : std::string("too many connections at once: try again later")};
    hooks_->refused(own ? reason::kTooManyOfMember : reason::kTooManySessions, remote, remote + ": " + full.message);
    return full;
  }

  static Awaitable<void> serve(std::shared_ptr<Impl> self, Greeted greeted, std::string remote) {
    greeted.stream->set_key_updates_max(self->settings_.key_updates_max);
    auto bridge = TlsBridge::make(std::move(greeted.stream));
    if (!bridge.ok()) {
      self->hooks_->accept_failed(bridge.error().message);
      co_return;
    }
    HttpConnection::Socket plain((*bridge)->take_plain());
    const Executor strand = plain.get_executor();
    HttpConnection::From from{remote, std::nullopt, *greeted.peer};
    auto http = std::make_shared<HttpConnection>(std::move(plain), std::move(from), self->settings_.http);
    const auto client =
        std::make_shared<Client>(*greeted.peer, std::move(*bridge), std::move(http), asio::steady_timer(strand));
    self->remember(client);
    // Once more: it may have been revoked since it was admitted, when it was not among the clients yet.
    if (!self->admission_(client->who).ok()) co_return;
    const auto end = [client] {
      client->http->close();
      client->over = true;
      client->ended.cancel();
    };
    const std::shared_ptr<void> at_end(nullptr, [end](void*) { end(); });  // when this is cancelled, too
    TaskGroup parts(strand, told_to(self->hooks_));
    parts.spawn(strand, remote, TlsBridge::carry(client->bridge, self->settings_.http.request_deadline));
    parts.spawn(strand, remote, end_with_certificate(self, client));
    co_await serve_http(client->http, self->handler_, self->hooks_);
    end();
    co_await parts.join();
  }

  void remember(const std::shared_ptr<Client>& client) {
    const std::lock_guard lock(mutex_);
    std::erase_if(clients_, [](const std::weak_ptr<Client>& known) { return known.expired(); });
    clients_.push_back(client);
  }

  static Awaitable<void> end_with_certificate(std::shared_ptr<Impl> self, std::shared_ptr<Client> client) {
    while (!client->over) {
      const Duration left = until(client->who.not_after, self->clock_.wall_now());
      if (left <= Duration::zero()) break;
      client->ended.expires_after(left);
      const auto [error] = co_await client->ended.async_wait(kAwaitTuple);
      if (error) co_return;  // the connection has ended
    }
    client->bridge->cut();
  }

  const Tls tls_;
  const HttpsSettings settings_;
  const std::shared_ptr<NetHooks> hooks_;
  const Admission admission_;
  HttpServer::Handler handler_;
  TaskGroup connections_;
  const std::shared_ptr<FrontDoor> door_;
  const SystemClock machines_;
  const Clock& clock_ = settings_.clock != nullptr ? *settings_.clock : machines_;
  std::mutex mutex_;
  std::vector<std::weak_ptr<Client>> clients_;
};

Result<std::shared_ptr<HttpsServer>> HttpsServer::open(Executor executor, TcpAddress address, Tls tls,
                                                       HttpsSettings settings, std::shared_ptr<NetHooks> hooks,
                                                       Admission admission) {
  FLUVIAL_CHECK(tls && tls() && tls()->is_server() && admission, "a server's TLS context, and who is admitted");
  FLUVIAL_ASSIGN(Tcp::acceptor acceptor,
                 open_acceptor(asio::make_strand(executor), address.host, address.port, kBacklog));
  return std::shared_ptr<HttpsServer>(new HttpsServer(std::make_shared<Impl>(
      std::move(executor), std::move(acceptor), std::move(tls), settings, std::move(hooks), std::move(admission))));
}

HttpsServer::HttpsServer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpsServer::~HttpsServer() { impl_->stop(); }
Awaitable<void> HttpsServer::run(HttpServer::Handler handler) { return Impl::run(impl_, std::move(handler)); }
void HttpsServer::stop() { impl_->stop(); }
void HttpsServer::admit_again() { impl_->admit_again(); }
std::uint16_t HttpsServer::port() const { return impl_->port(); }

}  // namespace fluvial::net

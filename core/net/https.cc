#include "core/net/https.h"

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/system/system_error.hpp>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "core/net/address.h"
#include "core/net/deadline.h"
#include "core/net/deadline_timer.h"
#include "core/net/greeting.h"
#include "core/net/http_connection.h"
#include "core/net/pace.h"
#include "core/net/run_on.h"
#include "core/net/strangers.h"
#include "core/net/task_group.h"
#include "core/net/tls_bridge.h"

namespace fluvial::net {
namespace {

using Tcp = asio::ip::tcp;
using ErrorCode = boost::system::error_code;

constexpr auto kAwaitTuple = asio::as_tuple(asio::use_awaitable);
constexpr Duration kPauseAfterFailedAccept = std::chrono::milliseconds(100);
constexpr std::size_t kDroppedBytesMax = 64 * 1024;
constexpr int kBacklog = 256;

Error gave_way(const std::string& remote) {
  return {Code::kResourceExhausted, remote + ": was still the longest of too many, and gave way to a newcomer"};
}

// Ends with the whole of it read by the client: whoever is refused learns why.
Awaitable<Status> tell(TlsStream* stream, Error why) {
  const HttpResponse answer = HttpResponse::from_error(why);
  const std::string text =
      "HTTP/1.1 " + std::to_string(answer.status) + " Refused\r\nContent-Type: " + answer.content_type +
      "\r\nContent-Length: " + std::to_string(answer.body.size()) + "\r\nConnection: close\r\n\r\n" + answer.body;
  FLUVIAL_CO_TRY(co_await stream->write(as_byte_span(text)));
  co_await stream->finish_writing();
  co_await stream->discard_input(kDroppedBytesMax);
  co_return Status{};
}

// A wall clock's time as a wait from now; none longer than a day, after which it is looked at again.
Duration until(WallTime end, WallTime now) {
  const auto left = std::chrono::duration_cast<Duration>(
      std::clamp<std::chrono::milliseconds>(end - now, std::chrono::milliseconds(0), std::chrono::days(1)));
  return left;
}

}  // namespace

class HttpsServer::Impl : public std::enable_shared_from_this<HttpsServer::Impl> {
 public:
  Impl(Executor executor, Tcp::acceptor acceptor, Tls tls, HttpsSettings settings, std::shared_ptr<NetHooks> hooks,
       Admission admission)
      : executor_(std::move(executor)),
        acceptor_(std::move(acceptor)),
        pause_(acceptor_.get_executor()),
        tls_(std::move(tls)),
        settings_(settings),
        hooks_(hooks ? std::move(hooks) : std::make_shared<NetHooks>()),
        admission_(std::move(admission)),
        handshakes_(executor_, failure_hook()),
        connections_(executor_, failure_hook()),
        port_(acceptor_.local_endpoint().port()),
        strangers_(settings_.strangers_max, settings_.strangers_per_address_max) {}

  static Awaitable<void> run(std::shared_ptr<Impl> self, HttpServer::Handler handler) {
    self->handler_ = std::move(handler);
    co_await run_on(self->acceptor_.get_executor(), accept_all(self));
    self->handshakes_.cancel();
    co_await self->handshakes_.join();
    self->for_each_client([](Client& client) { client.http->stop(); });
    const Status ended = co_await with_deadline(self->connections_.join(), self->settings_.http.stop_deadline);
    if (ended.ok()) co_return;
    self->for_each_client([](Client& client) { client.bridge->cut(); });
    self->connections_.cancel();
    co_await self->connections_.join();
  }

  void stop() {
    asio::dispatch(acceptor_.get_executor(), [self = shared_from_this()] {
      self->stopping_ = true;
      ErrorCode ignored;  // closing what is closed is fine
      self->acceptor_.close(ignored);
      self->pause_.cancel();
    });
  }

  void admit_again() {
    for_each_client([this](Client& client) {
      const Status admitted = admission_(client.who);
      if (admitted.ok()) return;
      hooks_->refused(reason::kNotAdmitted, client.http->remote(),
                      client.http->remote() + ": " + admitted.error().message + "; its connection ends");
      client.bridge->cut();
    });
  }

  std::uint16_t port() const { return port_; }

 private:
  // A connection that has not shown a certificate. `timer` is its strand's.
  struct Stranger {
    Stranger(const Executor& executor, Duration limit) : strand(executor), timer(executor, limit) {}
    const Executor strand;
    Strangers::Ticket ticket = 0;
    asio::steady_timer timer;
    bool gives_way = false;
  };
  struct Client {
    identity::PeerIdentity who;
    std::shared_ptr<TlsBridge> bridge;
    std::shared_ptr<HttpConnection> http;
    asio::steady_timer ended;  // with over on its strand
    bool over = false;
  };

  TaskGroup::Failed failure_hook() const {
    return
        [hooks = hooks_](const std::string& remote, const std::string& what) { hooks->handler_failed(remote, what); };
  }

  template <typename Act>
  void for_each_client(const Act& act) {
    const std::lock_guard lock(mutex_);
    for (const std::weak_ptr<Client>& known : clients_) {
      if (const auto client = known.lock()) act(*client);
    }
  }

  static Awaitable<void> accept_all(std::shared_ptr<Impl> self) {
    Pace pace(self->settings_.accepts_per_s, self->settings_.accepts_burst, self->clock_.now());
    while (!self->stopping_) {
      if (const Duration wait = pace.try_take(self->clock_.now()); wait > Duration::zero()) {
        co_await self->pause(wait);
        continue;
      }
      Tcp::socket socket{Executor(asio::make_strand(self->executor_))};
      const auto [error] = co_await self->acceptor_.async_accept(socket, kAwaitTuple);
      if (self->stopping_) break;
      if (!error) {
        self->take(std::move(socket));
      } else if (error != asio::error::connection_aborted) {
        self->hooks_->accept_failed(error.message());
        co_await self->pause(kPauseAfterFailedAccept);
      }
    }
  }

  Awaitable<void> pause(Duration duration) {
    pause_.expires_after(duration);
    co_await pause_.async_wait(kAwaitTuple);
  }

  void take(Tcp::socket socket) {
    ErrorCode error;
    const Tcp::endpoint endpoint = socket.remote_endpoint(error);
    const std::string remote = error ? "a peer that left" : describe(endpoint);
    const Executor strand = socket.get_executor();
    auto stranger = std::make_shared<Stranger>(strand, settings_.handshake_deadline);
    if (!arrive(stranger, remote)) {
      hooks_->refused(reason::kTooManyHandshakes, remote, remote + ": too many handshakes at once");
      return;
    }
    handshakes_.spawn(strand, remote, welcome(shared_from_this(), std::move(socket), remote, stranger));
  }

  bool arrive(const std::shared_ptr<Stranger>& stranger, const std::string& remote) {
    std::shared_ptr<Stranger> other;
    {
      const std::lock_guard lock(mutex_);
      const Strangers::Arrival arrival = strangers_.arrive(address_key(remote), clock_.now());
      if (!arrival.ticket) return false;
      stranger->ticket = *arrival.ticket;
      strangers_here_.emplace(*arrival.ticket, stranger);
      if (arrival.gives_way) {
        const auto found = strangers_here_.find(*arrival.gives_way);
        other = found->second.lock();
        strangers_here_.erase(found);
      }
    }
    if (!other) return true;
    asio::post(other->strand, [other] {
      other->gives_way = true;
      other->timer.cancel();
    });
    return true;
  }

  void moved(Strangers::Ticket ticket) {
    const std::lock_guard lock(mutex_);
    strangers_.moved(ticket, clock_.now());
  }
  void left(Strangers::Ticket ticket) {
    const std::lock_guard lock(mutex_);
    strangers_.left(ticket);
    strangers_here_.erase(ticket);
  }

  static Awaitable<Result<Greeted>> greet(std::shared_ptr<Impl> self, Tcp::socket socket, std::string remote,
                                          std::shared_ptr<std::optional<TlsFault>> fault,
                                          std::shared_ptr<Stranger> stranger) {
    auto moved = [self, stranger] { self->moved(stranger->ticket); };
    Result<Greeted> greeted = gave_way(remote);
    try {
      greeted = co_await before(&stranger->timer,
                                greet_client(std::move(socket), self->tls_(), remote, fault, std::move(moved)));
    } catch (const boost::system::system_error&) {
      if (!stranger->gives_way) throw;
    }
    if (!stranger->gives_way) co_return greeted;
    *fault = {reason::kGaveWay, gave_way(remote)};
    co_return gave_way(remote);
  }

  static Awaitable<void> welcome(std::shared_ptr<Impl> self, Tcp::socket socket, std::string remote,
                                 std::shared_ptr<Stranger> stranger) {
    const std::shared_ptr<void> until_known(nullptr, [self, stranger](void*) { self->left(stranger->ticket); });
    auto fault = std::make_shared<std::optional<TlsFault>>();
    auto greeted = co_await greet(self, std::move(socket), remote, fault, stranger);
    if (!greeted.ok()) {
      if (greeted.error().code == Code::kCancelled) co_return;  // we are stopping
      if (!*fault) *fault = {reason::kHandshakeSlow, {Code::kDeadlineExceeded, remote + ": no handshake in time"}};
      self->hooks_->refused((*fault)->reason, remote, (*fault)->error.message);
      co_return;
    }
    const Status admitted = self->admit(*greeted, remote);
    if (!admitted.ok()) {
      const Status told =
          co_await with_deadline(tell(greeted->stream.get(), admitted.error()), self->settings_.handshake_deadline);
      (void)told;  // the connection ends either way
      co_return;
    }
    self->connections_.spawn(stranger->strand, remote, serve(self, std::move(*greeted), remote));
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
    TaskGroup parts(strand, self->failure_hook());
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

  const Executor executor_;
  Tcp::acceptor acceptor_;  // with pause_ and stopping_ on a strand of its own
  asio::steady_timer pause_;
  bool stopping_ = false;
  const Tls tls_;
  const HttpsSettings settings_;
  const std::shared_ptr<NetHooks> hooks_;
  const Admission admission_;
  HttpServer::Handler handler_;
  TaskGroup handshakes_;
  TaskGroup connections_;
  const std::uint16_t port_;
  const SystemClock machines_;
  const Clock& clock_ = settings_.clock != nullptr ? *settings_.clock : machines_;
  std::mutex mutex_;
  Strangers strangers_;
  std::map<Strangers::Ticket, std::weak_ptr<Stranger>> strangers_here_;
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

#include "core/net/listener.h"

#include <algorithm>
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/system/system_error.hpp>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "core/net/connector.h"
#include "core/net/deadline.h"
#include "core/net/greeting.h"
#include "core/net/task_group.h"
#include "core/net/tls_stream.h"

namespace fluvial::net {
namespace {

using Tcp = asio::ip::tcp;
using SteadyClock = std::chrono::steady_clock;

constexpr auto kAwaitTuple = asio::as_tuple(asio::use_awaitable);
constexpr Duration kPauseAfterFailedAccept = std::chrono::milliseconds(100);  // out of files: others must close some

// How fast connections are taken from the kernel's backlog.
class TokenBucket {
 public:
  TokenBucket(double per_second, double burst) : per_second_(per_second), burst_(burst), tokens_(burst) {}

  // Zero when one may go now; otherwise how long until one may.
  Duration take(SteadyClock::time_point now) {
    tokens_ = std::min(burst_, tokens_ + std::chrono::duration<double>(now - last_).count() * per_second_);
    last_ = now;
    if (tokens_ >= 1) {
      tokens_ -= 1;
      return Duration::zero();
    }
    const std::chrono::duration<double> wait((1 - tokens_) / per_second_);
    return std::max<Duration>(std::chrono::duration_cast<Duration>(wait), std::chrono::microseconds(100));
  }

 private:
  const double per_second_;
  const double burst_;
  double tokens_;
  SteadyClock::time_point last_ = SteadyClock::now();
};

bool is_cancellation(const std::exception& failure) {
  const auto* error = dynamic_cast<const boost::system::system_error*>(&failure);
  return error != nullptr && error->code() == asio::error::operation_aborted;
}

}  // namespace

class Listener::Impl : public std::enable_shared_from_this<Listener::Impl> {
 public:
  Impl(Executor executor, Tcp::acceptor acceptor, std::shared_ptr<const identity::TlsContext> tls,
       ListenerSettings settings, std::shared_ptr<NetHooks> hooks, Admission admission)
      : executor_(std::move(executor)),
        acceptor_(std::move(acceptor)),
        pause_(acceptor_.get_executor()),
        tls_(std::move(tls)),
        settings_(settings),
        hooks_(hooks ? std::move(hooks) : std::make_shared<NetHooks>()),
        admission_(std::move(admission)),
        handshakes_(executor_, failure_hook()),
        handlers_(executor_, failure_hook()),
        port_(acceptor_.local_endpoint().port()) {}

  static Awaitable<void> run(std::shared_ptr<Impl> self, Handler handler) {
    self->handler_ = std::move(handler);
    co_await asio::co_spawn(self->acceptor_.get_executor(), accept_all(self), asio::use_awaitable);
    self->handshakes_.cancel();
    co_await self->handshakes_.join();
    self->close_sessions(true);
    const Status ended = co_await with_deadline(self->handlers_.join(), self->settings_.stop_deadline);
    if (ended.ok()) co_return;
    self->close_sessions(false);
    self->handlers_.cancel();
    co_await self->handlers_.join();
  }

  void stop() {
    asio::dispatch(acceptor_.get_executor(), [self = shared_from_this()] {
      self->stopping_ = true;
      boost::system::error_code ignored;  // closing what is closed is fine
      self->acceptor_.close(ignored);
      self->pause_.cancel();
    });
  }

  std::uint16_t port() const { return port_; }
  std::size_t session_count() const { return handlers_.size(); }

 private:
  TaskGroup::Failed failure_hook() const {
    return
        [hooks = hooks_](const std::string& remote, const std::string& what) { hooks->handler_failed(remote, what); };
  }

  static Awaitable<void> accept_all(std::shared_ptr<Impl> self) {
    TokenBucket bucket(self->settings_.accepts_per_s, self->settings_.accepts_burst);
    while (!self->stopping_) {
      if (const Duration wait = bucket.take(SteadyClock::now()); wait > Duration::zero()) {
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
    boost::system::error_code error;
    const Tcp::endpoint endpoint = socket.remote_endpoint(error);
    std::string remote = error ? "a peer that left" : describe(endpoint);
    if (handshakes_.size() >= settings_.strangers_max) {
      hooks_->refused(reason::kTooManyHandshakes, remote, remote + ": too many handshakes at once");
    } else if (handlers_.size() + handshakes_.size() >= settings_.sessions_max) {
      hooks_->refused(reason::kTooManySessions, remote, remote + ": too many sessions");
    } else {
      const Executor strand = socket.get_executor();
      handshakes_.spawn(strand, remote, welcome(shared_from_this(), std::move(socket), remote));
    }
  }

  static Awaitable<void> welcome(std::shared_ptr<Impl> self, Tcp::socket socket, std::string remote) {
    auto fault = std::make_shared<std::optional<TlsFault>>();
    auto greeted = co_await with_deadline(greet_client(std::move(socket), self->tls_, remote, fault),
                                          self->settings_.session.handshake_deadline);
    if (!greeted.ok()) {
      if (greeted.error().code == Code::kCancelled) co_return;  // we are stopping
      if (!*fault) *fault = {reason::kHandshakeSlow, {Code::kDeadlineExceeded, remote + ": no handshake in time"}};
      self->hooks_->refused((*fault)->reason, remote, (*fault)->error.message);
      co_return;
    }
    Status admitted;
    if (self->admission_ && greeted->peer) admitted = self->admission_(*greeted->peer);
    const Executor strand = greeted->stream->executor();
    auto session =
        start_session(std::move(greeted->stream), std::move(greeted->peer), self->settings_.session, self->hooks_);
    if (admitted.ok()) {
      self->handlers_.spawn(strand, remote, handle(self, std::move(session)));
    } else {
      self->hooks_->refused(reason::kNotAdmitted, remote, remote + ": " + admitted.error().message);
      session->close(admitted.error(), true);
    }
  }

  static Awaitable<void> handle(std::shared_ptr<Impl> self, std::shared_ptr<Session> session) {
    self->remember(session);
    try {
      co_await self->handler_(session);
    } catch (const std::exception& failure) {
      if (!is_cancellation(failure)) self->hooks_->handler_failed(session->remote(), failure.what());
    }
    session->close({Code::kCancelled, "the conversation is over"}, true);
    co_await session->closed();
  }

  void remember(const std::shared_ptr<Session>& session) {
    const std::lock_guard lock(sessions_mutex_);
    std::erase_if(sessions_, [](const std::weak_ptr<Session>& known) { return known.expired(); });
    sessions_.push_back(session);
  }

  void close_sessions(bool drain) {
    const std::lock_guard lock(sessions_mutex_);
    for (const std::weak_ptr<Session>& known : sessions_) {
      if (const auto session = known.lock()) session->close({Code::kCancelled, "shutting down"}, drain);
    }
  }

  const Executor executor_;
  Tcp::acceptor acceptor_;  // with pause_ and stopping_ on a strand of its own
  asio::steady_timer pause_;
  bool stopping_ = false;
  const std::shared_ptr<const identity::TlsContext> tls_;
  const ListenerSettings settings_;
  const std::shared_ptr<NetHooks> hooks_;
  const Admission admission_;
  Handler handler_;
  TaskGroup handshakes_;
  TaskGroup handlers_;
  const std::uint16_t port_;
  std::mutex sessions_mutex_;
  std::vector<std::weak_ptr<Session>> sessions_;
};

Result<std::shared_ptr<Listener>> Listener::open(Executor executor, const std::string& host, std::uint16_t port,
                                                 std::shared_ptr<const identity::TlsContext> tls,
                                                 ListenerSettings settings, std::shared_ptr<NetHooks> hooks,
                                                 Admission admission) {
  FLUVIAL_CHECK(tls && tls->is_server(), "a listener needs a server's TLS context");
  if (settings.session.payload_gate == nullptr) {
    settings.session.payload_gate = std::make_shared<PayloadGate>(settings.payload_bytes_in_flight_max);
  }
  auto acceptor = open_acceptor(asio::make_strand(executor), host, port, settings.backlog);
  if (!acceptor.ok()) return acceptor.error();
  return std::shared_ptr<Listener>(new Listener(std::make_shared<Impl>(
      std::move(executor), std::move(*acceptor), std::move(tls), settings, std::move(hooks), std::move(admission))));
}

Listener::Listener(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Listener::~Listener() { impl_->stop(); }
Awaitable<void> Listener::run(Handler handler) { return Impl::run(impl_, std::move(handler)); }
void Listener::stop() { impl_->stop(); }
std::uint16_t Listener::port() const { return impl_->port(); }
std::size_t Listener::session_count() const { return impl_->session_count(); }

}  // namespace fluvial::net

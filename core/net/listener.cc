#include "core/net/listener.h"

#include <algorithm>
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/system/system_error.hpp>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "core/net/address.h"
#include "core/net/connector.h"
#include "core/net/deadline.h"
#include "core/net/deadline_timer.h"
#include "core/net/greeting.h"
#include "core/net/pace.h"
#include "core/net/run_on.h"
#include "core/net/strangers.h"
#include "core/net/task_group.h"
#include "core/net/tls_stream.h"

namespace fluvial::net {
namespace {

using Tcp = asio::ip::tcp;
constexpr auto kAwaitTuple = asio::as_tuple(asio::use_awaitable);
constexpr Duration kPauseAfterFailedAccept = std::chrono::milliseconds(100);  // out of files: others must close some

Error gave_way(const std::string& remote) {
  return {Code::kResourceExhausted, remote + ": was still the longest of too many, and gave way to a newcomer"};
}

bool is_cancellation(const std::exception& failure) {
  const auto* error = dynamic_cast<const boost::system::system_error*>(&failure);
  return error != nullptr && error->code() == asio::error::operation_aborted;
}

}  // namespace

class Listener::Impl : public std::enable_shared_from_this<Listener::Impl> {
 public:
  Impl(Executor executor, Tcp::acceptor acceptor, std::shared_ptr<const identity::LiveTls> tls,
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
        port_(acceptor_.local_endpoint().port()),
        strangers_(settings_.strangers_max, settings_.strangers_per_address_max) {}

  static Awaitable<void> run(std::shared_ptr<Impl> self, Handler handler) {
    self->handler_ = std::move(handler);
    co_await run_on(self->acceptor_.get_executor(), accept_all(self));
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
    boost::system::error_code error;
    const Tcp::endpoint endpoint = socket.remote_endpoint(error);
    std::string remote = error ? "a peer that left" : describe(endpoint);
    if (handlers_.size() + handshakes_.size() >= settings_.sessions_max) {
      hooks_->refused(reason::kTooManySessions, remote, remote + ": too many sessions");
      return;
    }
    const Executor strand = socket.get_executor();
    auto stranger = std::make_shared<Stranger>(strand, settings_.session.handshake_deadline);
    if (!arrive(stranger, remote)) {
      hooks_->refused(reason::kTooManyHandshakes, remote, remote + ": too many handshakes at once");
      return;
    }
    handshakes_.spawn(strand, remote, welcome(shared_from_this(), std::move(socket), remote, stranger));
  }

  // A connection that has not proved to be a member's. `timer` and `session` are its strand's.
  struct Stranger {
    Stranger(const Executor& executor, Duration limit) : strand(executor), timer(executor, limit) {}
    const Executor strand;
    Strangers::Ticket ticket = 0;
    asio::steady_timer timer;  // its handshake ends with it
    bool gives_way = false;
    std::weak_ptr<Session> session;  // of a client without a certificate
  };

  bool arrive(const std::shared_ptr<Stranger>& stranger, const std::string& remote) {
    std::shared_ptr<Stranger> other;
    {
      const std::lock_guard lock(strangers_mutex_);
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
    if (other) asio::post(other->strand, [hooks = hooks_, other] { end(*hooks, *other); });
    return true;
  }

  static void end(NetHooks& hooks, Stranger& stranger) {
    stranger.gives_way = true;
    stranger.timer.cancel();
    const auto session = stranger.session.lock();
    if (session == nullptr || !session->is_open()) return;
    Error error = gave_way(session->remote());
    hooks.refused(reason::kGaveWay, session->remote(), error.message);
    session->close(std::move(error), false);
  }

  void moved(Strangers::Ticket ticket) {
    const std::lock_guard lock(strangers_mutex_);
    strangers_.moved(ticket, clock_.now());
  }
  void left(Strangers::Ticket ticket) {
    const std::lock_guard lock(strangers_mutex_);
    strangers_.left(ticket);
    strangers_here_.erase(ticket);
  }

  static Awaitable<Result<Greeted>> greet(std::shared_ptr<Impl> self, Tcp::socket socket, std::string remote,
                                          std::shared_ptr<std::optional<TlsFault>> fault,
                                          std::shared_ptr<Stranger> stranger) {
    auto moved = [self, stranger] { self->moved(stranger->ticket); };
    Result<Greeted> greeted = gave_way(remote);
    try {
      greeted = co_await before(
          &stranger->timer, greet_client(std::move(socket), self->tls_->current(), remote, fault, std::move(moved)));
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
    Status admitted;
    if (self->admission_ && greeted->peer) admitted = self->admission_(*greeted->peer);
    const Executor strand = greeted->stream->executor();
    auto session =
        start_session(std::move(greeted->stream), std::move(greeted->peer), self->settings_.session, self->hooks_);
    if (!admitted.ok()) {
      self->hooks_->refused(reason::kNotAdmitted, remote, remote + ": " + admitted.error().message);
      session->close(admitted.error(), true);
      co_return;
    }
    if (!session->peer()) stranger->session = session;
    self->handlers_.spawn(strand, remote, handle(self, session, session->peer() ? nullptr : until_known));
  }

  // A client without a certificate stays a stranger until it leaves.
  static Awaitable<void> handle(std::shared_ptr<Impl> self, std::shared_ptr<Session> session,
                                std::shared_ptr<void> stranger) {
    self->remember(session);
    try {
      co_await self->handler_(session);
    } catch (const std::exception& failure) {
      if (!is_cancellation(failure)) self->hooks_->handler_failed(session->remote(), failure.what());
    }
    session->close({Code::kCancelled, "the conversation is over"}, true);
    co_await session->closed();
    stranger.reset();
  }

  void remember(const std::shared_ptr<Session>& session) {
    const std::lock_guard lock(sessions_mutex_);
    std::erase_if(sessions_, [](const std::weak_ptr<Session>& known) { return known.expired(); });
    sessions_.push_back(session);
    if (session->peer()) make_room(session);
  }

  // A member's oldest session ends for its newest: that one is what the member holds on to.
  void make_room(const std::shared_ptr<Session>& newest) {
    std::vector<std::weak_ptr<Session>>& all = of_member_[newest->peer()->node];
    const auto is_over = [](const std::weak_ptr<Session>& known) {
      const auto session = known.lock();
      return session == nullptr || !session->is_open();
    };
    std::erase_if(all, is_over);
    if (all.size() >= settings_.sessions_per_member_max) {
      if (const auto oldest = all.front().lock()) {
        Error error{Code::kResourceExhausted, oldest->remote() + ": too many sessions of " + newest->peer()->name};
        hooks_->refused(reason::kTooManyOfMember, oldest->remote(), error.message);
        oldest->close(std::move(error), true);
      }
      all.erase(all.begin());
    }
    all.push_back(newest);
    if (of_member_.size() <= 2 * sessions_.size() + 64) return;
    std::erase_if(of_member_, [&](const auto& member) { return std::ranges::all_of(member.second, is_over); });
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
  const std::shared_ptr<const identity::LiveTls> tls_;
  const ListenerSettings settings_;
  const std::shared_ptr<NetHooks> hooks_;
  const Admission admission_;
  Handler handler_;
  TaskGroup handshakes_;
  TaskGroup handlers_;
  const std::uint16_t port_;
  const SystemClock machines_;
  const Clock& clock_ = settings_.session.clock != nullptr ? *settings_.session.clock : machines_;
  std::mutex strangers_mutex_;
  Strangers strangers_;
  std::map<Strangers::Ticket, std::weak_ptr<Stranger>> strangers_here_;
  std::mutex sessions_mutex_;
  std::vector<std::weak_ptr<Session>> sessions_;
  std::map<NodeId, std::vector<std::weak_ptr<Session>>> of_member_;  // oldest first
};

Result<std::shared_ptr<Listener>> Listener::open(Executor executor, const std::string& host, std::uint16_t port,
                                                 std::shared_ptr<const identity::LiveTls> tls,
                                                 ListenerSettings settings, std::shared_ptr<NetHooks> hooks,
                                                 Admission admission) {
  FLUVIAL_CHECK(tls && tls->current()->is_server(), "a listener needs a server's TLS context");
  if (settings.session.payload_gate == nullptr) {
    settings.session.payload_gate = std::make_shared<PayloadGate>(
        PayloadGate::Limits{settings.payload_bytes_in_flight_max, settings.payload_bytes_per_member_max});
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

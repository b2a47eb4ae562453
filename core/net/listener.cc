#include "core/net/listener.h"

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/strand.hpp>
#include <boost/system/system_error.hpp>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "core/net/deadline.h"
#include "core/net/front_door.h"
#include "core/net/task_group.h"

namespace fluvial::net {
namespace {

using Tcp = asio::ip::tcp;

constexpr std::size_t kOutboxesInAll = 16;  // as full as send() makes them: what all sessions may keep of messages

bool is_cancellation(const std::exception& failure) {
  const auto* error = dynamic_cast<const boost::system::system_error*>(&failure);
  return error != nullptr && error->code() == asio::error::operation_aborted;
}

}  // namespace

class Listener::Impl {
 public:
  Impl(Executor executor, Tcp::acceptor acceptor, std::shared_ptr<const identity::LiveTls> tls,
       ListenerSettings settings, std::shared_ptr<NetHooks> hooks, Admission admission)
      : tls_(std::move(tls)),
        settings_(settings),
        hooks_(hooks ? std::move(hooks) : std::make_shared<NetHooks>()),
        admission_(std::move(admission)),
        handlers_(executor, told_to(hooks_)),
        door_(std::make_shared<FrontDoor>(
            executor, std::move(acceptor),
            FrontDoor::Settings{settings_.accepts_per_s, settings_.accepts_burst, settings_.strangers_max,
                                settings_.strangers_per_address_max, settings_.session.handshake_deadline,
                                settings_.session.clock},
            hooks_)) {}

  static Awaitable<void> run(std::shared_ptr<Impl> self, Handler handler) {
    self->handler_ = std::move(handler);
    FrontDoor::Host host;
    host.tls = [self] { return self->tls_->current(); };
    host.has_room = [self](std::size_t handshakes) {
      return self->handlers_.size() + handshakes < self->settings_.sessions_max;
    };
    host.came = [self](FrontDoor::Guest guest) { return came(self, std::move(guest)); };
    co_await FrontDoor::run(self->door_, std::move(host));
    self->close_sessions(true);
    const Status ended = co_await with_deadline(self->handlers_.join(), self->settings_.stop_deadline);
    if (ended.ok()) co_return;
    self->close_sessions(false);
    self->handlers_.cancel();
    co_await self->handlers_.join();
  }

  void stop() { door_->stop(); }
  std::uint16_t port() const { return door_->port(); }
  std::size_t session_count() const { return handlers_.size(); }

 private:
  static Awaitable<void> came(std::shared_ptr<Impl> self, FrontDoor::Guest guest) {
    const std::string& remote = guest.stranger->remote;
    Status admitted;
    if (self->admission_ && guest.greeted.peer) admitted = self->admission_(*guest.greeted.peer);
    auto session = start_session(std::move(guest.greeted.stream), std::move(guest.greeted.peer),
                                 self->settings_.session, self->hooks_);
    if (!admitted.ok()) {
      self->hooks_->refused(reason::kNotAdmitted, remote, remote + ": " + admitted.error().message);
      session->close(admitted.error(), true);
      co_return;
    }
    if (session->peer()) {
      guest.until_known.reset();
    } else {
      guest.stranger->end = [hooks = self->hooks_, known = std::weak_ptr(session)](Error error) {
        give_way(*hooks, known.lock(), std::move(error));
      };
    }
    self->handlers_.spawn(guest.stranger->strand, remote, handle(self, session, std::move(guest.until_known)));
  }

  static void give_way(NetHooks& hooks, const std::shared_ptr<Session>& session, Error error) {
    if (session == nullptr || !session->is_open()) return;
    hooks.refused(reason::kGaveWay, session->remote(), error.message);
    session->close(std::move(error), false);
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

  const std::shared_ptr<const identity::LiveTls> tls_;
  const ListenerSettings settings_;
  const std::shared_ptr<NetHooks> hooks_;
  const Admission admission_;
  Handler handler_;
  TaskGroup handlers_;
  const std::shared_ptr<FrontDoor> door_;
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
  if (settings.session.outboxes == nullptr) {
    settings.session.outboxes = std::make_shared<OutboxBudget>(kOutboxesInAll * settings.session.outbox_bytes_max);
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

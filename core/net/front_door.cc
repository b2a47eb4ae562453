#include "core/net/front_door.h"

#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <boost/system/system_error.hpp>
#include <optional>
#include <utility>

#include "core/net/address.h"
#include "core/net/await_tuple.h"
#include "core/net/connector.h"
#include "core/net/deadline_timer.h"
#include "core/net/pace.h"
#include "core/net/run_on.h"

namespace fluvial::net {
namespace {

constexpr Duration kPauseAfterFailedAccept = std::chrono::milliseconds(100);  // out of files: others must close some

Error gave_way(const std::string& remote) {
  return {Code::kResourceExhausted, remote + ": was still the longest of too many, and gave way to a newcomer"};
}

}  // namespace

TaskGroup::Failed told_to(std::shared_ptr<NetHooks> hooks) {
  return [hooks = std::move(hooks)](const std::string& remote, const std::string& what) {
    hooks->handler_failed(remote, what);
  };
}

FrontDoor::FrontDoor(Executor executor, Tcp::acceptor acceptor, Settings settings, std::shared_ptr<NetHooks> hooks)
    : executor_(std::move(executor)),
      acceptor_(std::move(acceptor)),
      pause_(acceptor_.get_executor()),
      settings_(settings),
      hooks_(std::move(hooks)),
      handshakes_(executor_, told_to(hooks_)),
      port_(acceptor_.local_endpoint().port()),
      strangers_(settings_.strangers_max, settings_.strangers_per_address_max) {}

Awaitable<void> FrontDoor::run(std::shared_ptr<FrontDoor> self, Host host) {
  co_await run_on(self->acceptor_.get_executor(), accept_all(self, std::make_shared<const Host>(std::move(host))));
  self->handshakes_.cancel();
  co_await self->handshakes_.join();
}

void FrontDoor::stop() {
  asio::dispatch(acceptor_.get_executor(), [self = shared_from_this()] {
    self->stopping_ = true;
    boost::system::error_code ignored;  // closing what is closed is fine
    self->acceptor_.close(ignored);
    self->pause_.cancel();
  });
}

Awaitable<void> FrontDoor::accept_all(std::shared_ptr<FrontDoor> self, std::shared_ptr<const Host> host) {
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
      self->take(std::move(socket), host);
    } else if (error != asio::error::connection_aborted) {
      self->hooks_->accept_failed(error.message());
      co_await self->pause(kPauseAfterFailedAccept);
    }
  }
}

Awaitable<void> FrontDoor::pause(Duration duration) {
  pause_.expires_after(duration);
  co_await pause_.async_wait(kAwaitTuple);
}

void FrontDoor::take(Tcp::socket socket, const std::shared_ptr<const Host>& host) {
  boost::system::error_code error;
  const Tcp::endpoint endpoint = socket.remote_endpoint(error);
  const std::string remote = error ? "a peer that left" : describe(endpoint);
  if (!host->has_room(handshakes_.size())) {
    hooks_->refused(reason::kTooManySessions, remote, remote + ": too many sessions");
    return;
  }
  const Executor strand = socket.get_executor();
  auto stranger = std::make_shared<Stranger>(strand, remote, settings_.handshake_deadline);
  if (!arrive(stranger)) {
    hooks_->refused(reason::kTooManyHandshakes, remote, remote + ": too many handshakes at once");
    return;
  }
  handshakes_.spawn(strand, remote, welcome(shared_from_this(), host, std::move(socket), stranger));
}

bool FrontDoor::arrive(const std::shared_ptr<Stranger>& stranger) {
  std::shared_ptr<Stranger> other;
  {
    const std::lock_guard lock(mutex_);
    const Strangers::Arrival arrival = strangers_.arrive(address_key(stranger->remote), clock_.now());
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
    if (other->end) other->end(gave_way(other->remote));
  });
  return true;
}

void FrontDoor::moved(Strangers::Ticket ticket) {
  const std::lock_guard lock(mutex_);
  strangers_.moved(ticket, clock_.now());
}

void FrontDoor::left(Strangers::Ticket ticket) {
  const std::lock_guard lock(mutex_);
  strangers_.left(ticket);
  strangers_here_.erase(ticket);
}

Awaitable<Result<Greeted>> FrontDoor::greet(std::shared_ptr<FrontDoor> self, std::shared_ptr<const Host> host,
                                            Tcp::socket socket, std::shared_ptr<std::optional<TlsFault>> fault,
                                            std::shared_ptr<Stranger> stranger) {
  auto moved = [self, stranger] { self->moved(stranger->ticket); };
  Result<Greeted> greeted = gave_way(stranger->remote);
  try {
    greeted = co_await before(&stranger->timer,
                              greet_client(std::move(socket), host->tls(), stranger->remote, fault, std::move(moved)));
  } catch (const boost::system::system_error&) {
    if (!stranger->gives_way) throw;
  }
  if (!stranger->gives_way) co_return greeted;
  *fault = {reason::kGaveWay, gave_way(stranger->remote)};
  co_return gave_way(stranger->remote);
}

Awaitable<void> FrontDoor::welcome(std::shared_ptr<FrontDoor> self, std::shared_ptr<const Host> host,
                                   Tcp::socket socket, std::shared_ptr<Stranger> stranger) {
  std::shared_ptr<void> until_known(nullptr, [self, stranger](void*) { self->left(stranger->ticket); });
  auto fault = std::make_shared<std::optional<TlsFault>>();
  auto greeted = co_await greet(self, host, std::move(socket), fault, stranger);
  if (!greeted.ok()) {
    if (greeted.error().code == Code::kCancelled) co_return;  // we are stopping
    if (!*fault)
      *fault = {reason::kHandshakeSlow, {Code::kDeadlineExceeded, stranger->remote + ": no handshake in time"}};
    self->hooks_->refused((*fault)->reason, stranger->remote, (*fault)->error.message);
    co_return;
  }
  co_await host->came({std::move(*greeted), stranger, std::move(until_known)});
}

}  // namespace fluvial::net

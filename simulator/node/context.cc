#include "simulator/node/context.h"

#include <boost/asio/error.hpp>

namespace fluvial::simulator {

NodeContext::NodeContext(World& world, HostId host) : world_(world), host_(host) { net::keep_time(*this, *this); }

NodeContext::~NodeContext() {
  end();
  shutdown();
  destroy();
}

net::Executor NodeContext::executor() { return NodeExecutor(*this); }

void NodeContext::post(Action action) {
  if (ended_) return;
  queue_.push_back(std::move(action));
  if (std::exchange(scheduled_, true)) return;
  world_.after(host_, Duration(0), [this] { run(); });
}

void NodeContext::run() {
  while (!queue_.empty() && world_.is_up(host_)) {
    Action action = std::move(queue_.front());
    queue_.pop_front();
    action();
  }
  scheduled_ = false;
}

// A coroutine that is taken down may drop what another coroutine waits on; that other one is in here, too.
void NodeContext::end() {
  ended_ = true;
  while (!queue_.empty() || !waiting_.empty()) {
    const std::deque<Action> queue = std::exchange(queue_, {});
    const std::map<Ticket, Waiting> waiting = std::exchange(waiting_, {});
  }
}

net::Timekeeper::Ticket NodeContext::wait(std::optional<Duration> limit, std::unique_ptr<net::Waiter> waiter) {
  const Ticket ticket = ++last_ticket_;
  if (ended_) return ticket;
  Waiting& entry = waiting_[ticket];
  entry.waiter = std::move(waiter);
  if (limit) {
    entry.event = world_.at(host_, world_.clock(host_).now() + *limit, [this, ticket] { finish(ticket, {}); });
  }
  return ticket;
}

void NodeContext::cancel(Ticket ticket) {
  const auto found = waiting_.find(ticket);
  if (found == waiting_.end()) return;
  if (found->second.event != EventId(0)) world_.cancel(found->second.event);
  finish(ticket, net::asio::error::operation_aborted);
}

void NodeContext::finish(Ticket ticket, boost::system::error_code error) {
  auto node = waiting_.extract(ticket);
  if (!node.empty()) node.mapped().waiter->done(error);
}

}  // namespace fluvial::simulator

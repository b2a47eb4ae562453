#include "simulator/node/node.h"

#include <boost/asio/awaitable.hpp>
#include <utility>

namespace fluvial::simulator {
namespace {

net::BackoffSettings backoff_of(const Scenario& scenario) {
  net::BackoffSettings settings;
  settings.first = scenario.session.reconnect_delay_min;
  settings.cap = scenario.session.reconnect_delay_max;
  return settings;
}

net::SessionSettings session_of(const Scenario& scenario) {
  net::SessionSettings settings;
  settings.heartbeat_timeout = scenario.session.heartbeat_timeout;
  settings.connect_deadline = scenario.session.connect_deadline;
  settings.outbox_bytes_max = scenario.session.outbox_bytes_max;
  return settings;
}

}  // namespace

Node::Node(World& world, HostId host, Role role, IdentityOf identity_of, const WorkCosts& costs,
           telemetry::Metrics* metrics)
    : world_(world),
      host_(host),
      identity_of_(std::move(identity_of)),
      context_(world, host),
      pool_(world, host, context_, costs),
      own_metrics_(metrics == nullptr ? std::make_unique<telemetry::Metrics>(role, "simulated") : nullptr),
      runtime_{context_.executor(),
               context_.executor(),
               pool_,
               1,
               world.clock(host),
               world.disk(host).files(),
               telemetry::null_logger(),
               metrics == nullptr ? *own_metrics_ : *metrics,
               std::make_shared<net::NetHooks>(),
               session_of(world.scenario()),
               backoff_of(world.scenario())},
      tasks_(context_.executor(), [this](const std::string& task, const std::string& what) {
        world_.violate("no_exception", task + ": " + what);
      }) {}

Node::~Node() { take_down(); }

void Node::take_down() { context_.end(); }

std::shared_ptr<NodeSession> Node::find(SessionId session) const {
  const auto found = sessions_.find(session);
  return found == sessions_.end() ? nullptr : found->second.lock();
}

void Node::accepted(SessionId session, HostId from) {
  auto made = std::make_shared<NodeSession>(world_, host_, context_, session, identity_of_(from), &outgoing_);
  sessions_[session] = made;
  spawn("session", serve_to_the_end(std::move(made)));
}

// As in core/net/listener.h, the session is closed when its handler returns.
net::Awaitable<void> Node::serve_to_the_end(std::shared_ptr<NodeSession> session) {
  co_await serve(session);
  session->close({Code::kCancelled, "nothing more to say"}, true);
}

void Node::connected(SessionId session) {
  const auto found = connecting_.find(session);
  if (found == connecting_.end()) return;
  found->second->up = true;
  found->second->changed.notify_all();
}

void Node::received(SessionId session, Frame frame) {
  if (const auto here = find(session)) here->came(std::move(frame));
  after_frame();
}

void Node::closed(SessionId session, const Error& why) {
  if (const auto found = connecting_.find(session); found != connecting_.end()) {
    found->second->failed = why;
    found->second->changed.notify_all();
  }
  if (const auto here = find(session)) here->ended(why);
  sessions_.erase(session);
}

void Node::writable(SessionId session) {
  if (const auto here = find(session)) here->writable();
}

tree::Dial Node::dial(std::function<Answer(const net::HostPort&)> who_is_at) {
  return [this, who = std::move(who_is_at)](const net::HostPort& address, Role) { return connect(who(address)); };
}

net::Awaitable<Result<std::shared_ptr<net::Session>>> Node::connect(Answer to) {
  const SessionId id = world_.network().connect(host_, to.host);
  const auto state = connecting_[id] = std::make_shared<Connecting>(context_.executor());
  if (to.at_enrolment) to.at_enrolment(id);
  // The peer's frames come after connected(); they must find the session.
  auto session = std::make_shared<NodeSession>(world_, host_, context_, id, identity_of_(to.takes_it), &outgoing_);
  sessions_[id] = session;
  while (!state->up && !state->failed) co_await state->changed.wait();
  connecting_.erase(id);
  if (state->failed) co_return *state->failed;
  if (session->member().not_after <= runtime_.clock.wall_now()) {  // as TLS has it
    const Error ended{Code::kUnauthenticated, "the peer's certificate has ended"};
    session->close(ended, false);
    co_return ended;
  }
  const Status known = trusts_ && !to.at_enrolment ? trusts_(identity_of_(to.takes_it)) : Status{};
  if (!known.ok()) {
    session->close(known.error(), false);
    co_return known.error();
  }
  co_return std::shared_ptr<net::Session>(std::move(session));
}

}  // namespace fluvial::simulator

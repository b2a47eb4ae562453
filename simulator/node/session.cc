#include "simulator/node/session.h"

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

#include "core/wire/mapping.h"

namespace fluvial::simulator {
namespace {

constexpr Duration kClockInterval = std::chrono::seconds(5);  // a real session's heartbeat_interval

// By how much two hosts' clocks run apart here at the most.
double drift_of(const Scenario& scenario) {
  return std::max(kClockDrift, 2.2e-6 * scenario.faults.clock.drift_ppm_max);
}

}  // namespace

NodeSession::NodeSession(World& world, HostId host, NodeContext& context, SessionId id, identity::PeerIdentity peer,
                         Outgoing* outgoing)
    : world_(world),
      host_(host),
      context_(context),
      id_(id),
      peer_(std::move(peer)),
      remote_(peer_->name),
      outgoing_(outgoing),
      probe_(world.clock(host), drift_of(world.scenario())),
      question_(context.executor()),
      arrival_(context.executor()),
      room_(context.executor()),
      ended_(context.executor()) {}

NodeSession::~NodeSession() { close({Code::kCancelled, "closed: nobody holds the session any more"}, true); }

net::Awaitable<void> NodeSession::never() { co_await net::detail::async_wait(context_, {}, net::asio::use_awaitable); }

// ---- clocks, as core/net's sessions measure them ------------------------------------------------------------------

// Nobody looks at clocks in the planner's world, and it may have ten thousand sessions.
void NodeSession::measure_clock() {
  if (questions_ == 0 && !world_.scenario().workload.sized) ask_clock();
}

void NodeSession::ask_clock() {
  if (!open_) return;
  v1::Envelope message;
  message.mutable_ping()->set_token(++questions_);
  probe_.asked(questions_);
  world_.network().send(host_, id_, message);
  question_.after(kClockInterval, [this] { ask_clock(); });
}

bool NodeSession::take_clock_message(const v1::Envelope& message) {
  if (message.has_ping()) {
    v1::Envelope answer;
    *answer.mutable_pong() = probe_.answer(message.ping().token(), probe_.now());
    world_.network().send(host_, id_, answer);
    return true;
  }
  if (!message.has_pong()) return false;
  if (probe_.answered(message.pong()) && probe_.is_settling()) ask_clock();
  return true;
}

// ---- frames -------------------------------------------------------------------------------------------------------

net::Awaitable<Result<net::Frame>> NodeSession::receive() {
  while (frames_.empty() && open_) co_await arrival_.wait();
  if (frames_.empty()) co_return reason_;
  net::Frame frame = std::move(frames_.front());
  frames_.pop_front();
  if (world_.crash_here(host_, "received")) co_await never();
  co_return frame;
}

net::Awaitable<Status> NodeSession::send(net::OutFrame frame) {
  while (open_ && world_.network().writable_bytes(host_, id_) == 0) co_await room_.wait();
  if (!open_) co_return reason_;
  if (!put(std::move(frame))) co_await never();
  co_return Status{};
}

void NodeSession::post(net::OutFrame frame) {
  if (open_) put(std::move(frame));
}

bool NodeSession::put(net::OutFrame frame) {
  if (*outgoing_ && !(*outgoing_)(id_, frame.header, frame.payload)) return true;
  if (world_.crash_here(host_, "send")) return false;
  world_.network().send(host_, id_, frame.header, Payload::of(std::move(frame.payload)));
  return true;
}

void NodeSession::close(Error reason, bool drain) {
  if (!open_) return;
  if (drain) {
    v1::Envelope bye;
    if (reason.code != Code::kCancelled) bye.mutable_goodbye()->set_code(wire::code_to_proto(reason.code));
    bye.mutable_goodbye()->set_message(wire::printable(reason.message));
    world_.network().send(host_, id_, bye);
    world_.network().close(host_, id_);
  } else {
    world_.network().abort(host_, id_);
  }
  over(std::move(reason));
}

net::Awaitable<void> NodeSession::closed() {
  while (open_) co_await ended_.wait();
}

void NodeSession::came(Frame frame) {
  if (!open_ || take_clock_message(frame.header)) return;
  if (frame.header.has_goodbye()) {
    const v1::Goodbye& bye = frame.header.goodbye();
    Error why = bye.code() == 0 ? Error{Code::kUnavailable, "the peer leaves: " + bye.message()}
                                : wire::error_from_proto(bye.code(), bye.message());
    world_.network().close(host_, id_);
    return over(std::move(why));
  }
  frames_.push_back({std::move(frame.header), Buffer::copy_of(frame.payload.bytes.bytes)});
  arrival_.notify_all();
}

void NodeSession::ended(Error why) {
  if (open_) over(std::move(why));
}

void NodeSession::over(Error why) {
  open_ = false;
  question_.cancel();
  reason_ = std::move(why);
  arrival_.notify_all();
  room_.notify_all();
  ended_.notify_all();
}

}  // namespace fluvial::simulator

#include "simulator/roles/child_end.h"

#include <algorithm>
#include <utility>

#include "core/wire/history_mapping.h"
#include "core/wire/mapping.h"
#include "core/wire/protocol.h"

namespace fluvial::simulator {
namespace {

constexpr Duration kHandshake = std::chrono::seconds(10);

BackoffSettings backoff_of(const Scenario& scenario) {
  BackoffSettings settings;
  settings.first = scenario.session.reconnect_delay_min;
  settings.cap = scenario.session.reconnect_delay_max;
  return settings;
}

}  // namespace

ChildEnd::ChildEnd(Cast& cast, HostId host, Incarnation incarnation, ChildOwner& owner)
    : cast_(cast),
      host_(host),
      incarnation_(incarnation),
      owner_(owner),
      backoff_(backoff_of(cast.scenario()),
               cast.world().chance().stream("backoff", (std::uint64_t{host.value()} << 32) ^ incarnation.value())) {}

void ChildEnd::start() { ask_lease(); }

void ChildEnd::arm() {
  cast_.world().cancel(deadline_);
  deadline_ = cast_.world().after(host_, kHandshake, [this] {
    cast_.world().network().abort(host_, session_);
    closed({Code::kDeadlineExceeded, "no answer in the handshake"});
  });
}

void ChildEnd::ask_lease() {
  stage_ = Stage::kLeaseConnect;
  session_ = cast_.world().network().connect(host_, kRoot);
  arm();
}

void ChildEnd::again(std::optional<Duration> lasted) {
  stage_ = Stage::kIdle;
  session_ = SessionId(0);
  cast_.world().cancel(deadline_);
  cast_.world().after(host_, backoff_.next_after(lasted), [this] { ask_lease(); });
}

void ChildEnd::hello(Epoch lease) {
  v1::Envelope message;
  v1::Hello& hello = *message.mutable_hello();
  const wire::Protocols protocols = cast_.protocols(host_);
  hello.set_protocol_min(protocols.oldest);
  hello.set_protocol_max(protocols.newest);
  hello.set_software("fluvial simulate");
  hello.set_incarnation(incarnation_.value());
  hello.set_lease_epoch(lease.value());
  hello.set_history(history_.value());
  cast_.world().network().send(host_, session_, message);
}

void ChildEnd::connected() {
  if (stage_ == Stage::kLeaseConnect) {
    stage_ = Stage::kLeaseHello;
    hello(Epoch(0));
  } else if (stage_ == Stage::kConnect) {
    stage_ = Stage::kHello;
    hello(lease_.epoch);
  }
}

void ChildEnd::closed(const Error& why) {
  const Stage before = stage_;
  // Stale is an answer: it knows of a newer lease, or does not know this one yet.
  const bool reached = why.code == Code::kStale;
  if ((before == Stage::kConnect || before == Stage::kHello) && !reached) unreachable_ = lease_.parent;
  std::optional<Duration> lasted;
  if (before == Stage::kUp) {
    lasted = now() - up_since_;
    stage_ = Stage::kIdle;
    session_ = SessionId(0);
    owner_.parent_down(why);
  }
  again(lasted);
}

Status ChildEnd::ask() {
  FLUVIAL_ASSIGN(round::Standing standing, owner_.standing());
  cast_.claim(host_, &standing);
  v1::Envelope ask;
  if (cast_.identity(host_).role == Role::kAggregator) {
    ask.mutable_lease_request()->set_advertise(Cast::address_of(host_));
  }
  ask.mutable_lease_request()->set_unreachable(unreachable_.value());
  *ask.mutable_lease_request()->mutable_standing() = wire::to_proto(standing);
  cast_.world().network().send(host_, session_, ask);
  stage_ = Stage::kLeaseAsked;
  return {};
}

Status ChildEnd::granted(const v1::LeaseGrant& grant) {
  if (grant.epoch() == 0 || grant.parents_size() == 0) return Error{Code::kDataLoss, "the lease names no parent"};
  FLUVIAL_ASSIGN(const round::Lineage lineage, wire::from_proto(grant.histories()));
  const v1::Parent& parent = grant.parents(0);
  lease_ = {Epoch(grant.epoch()), NodeId(parent.node()), parent.node() == 0 ? kRoot : cast_.host_at(parent.address())};
  cast_.world().cancel(deadline_);
  cast_.world().network().close(host_, session_);
  session_ = SessionId(0);
  stage_ = Stage::kLeaseGiven;
  owner_.granted(lineage, lease_.epoch, [this, history = round::current_of(lineage)](const Status& taken) {
    if (!taken.ok()) return again({});
    history_ = history;
    connect();
  });
  return {};
}

void ChildEnd::connect() {
  unreachable_ = NodeId(0);
  stage_ = Stage::kConnect;
  session_ = cast_.world().network().connect(host_, lease_.host);
  arm();
}

void ChildEnd::received(Frame frame) {
  const v1::Envelope& message = frame.header;
  Network& network = cast_.world().network();
  switch (stage_) {
    case Stage::kLeaseHello: {
      if (!message.has_welcome() || !ask().ok()) break;
      return;
    }
    case Stage::kLeaseAsked: {
      if (!message.has_lease_grant() || !granted(message.lease_grant()).ok()) break;
      return;
    }
    case Stage::kHello: {
      if (!message.has_welcome()) break;
      cast_.world().cancel(deadline_);
      stage_ = Stage::kUp;
      up_since_ = now();
      owner_.parent_up(lease_);
      return;
    }
    case Stage::kUp: {
      if (message.has_goodbye()) return;  // the end follows
      if (owner_.from_parent(std::move(frame)).ok()) return;
      break;
    }
    default: break;
  }
  network.abort(host_, session_);
  closed(message.has_goodbye() ? wire::error_from_proto(message.goodbye().code(), message.goodbye().message())
                               : Error{Code::kFailedPrecondition, "not what a parent says here"});
}

bool ChildEnd::post(const v1::Envelope& message, Payload payload) {
  return is_up() && cast_.world().network().send(host_, session_, message, std::move(payload));
}

bool ChildEnd::has_room() const { return is_up() && cast_.world().network().writable_bytes(host_, session_) > 0; }

}  // namespace fluvial::simulator

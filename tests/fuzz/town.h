// A few simulated hosts (simulator/node) for fuzzers of message sequences: what is under test is shipped code in
// virtual time, and whoever talks to it is written here. Every key is made of its host's number, so signatures can be
// right.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/identity/seeded_key.h"
#include "core/identity/signature.h"
#include "core/tree/lease_statement.h"
#include "core/wire/frame.h"
#include "core/wire/mapping.h"
#include "core/wire/protocol.h"
#include "simulator/node/node.h"
#include "tests/fuzz/input.h"

namespace fluvial::fuzz {

using simulator::HostId;
using simulator::kRoot;
using simulator::World;

inline const identity::PrivateKey& key_of(HostId host) {
  static const std::vector<identity::PrivateKey> keys = [] {
    std::vector<identity::PrivateKey> made;
    for (unsigned char i = 0; i < 8; ++i) {
      Digest seed{};
      seed[0] = std::byte{i};
      made.push_back(identity::seeded_key(seed).value());
    }
    return made;
  }();
  return keys.at(host.value());
}

inline NodeId node_of(HostId host) { return NodeId(host.value() + 1); }

inline identity::PeerIdentity identity_of(const World& world, HostId host) {
  static const std::vector<identity::PublicKey> keys = [] {
    std::vector<identity::PublicKey> made;
    for (std::uint32_t i = 0; i < 8; ++i) made.push_back(identity::PublicKey::of(key_of(HostId(i))));
    return made;
  }();
  identity::PeerIdentity identity{world.host(host).role, node_of(host), world.host(host).name};
  identity.key = keys.at(host.value());
  identity.not_after = WallTime(std::chrono::hours(24 * 365 * 200));  // certificates are not what this is about
  return identity;
}

inline v1::Signed signed_by(HostId host, std::string_view kind, std::string body) {
  v1::Signed order;
  order.set_signature(wire::signature_to_proto(identity::sign(key_of(host), kind, as_byte_span(body)).value()));
  order.set_body(std::move(body));
  return order;
}

// What no peer could read, such as a text that is no UTF-8, is not said: frame_fuzz says it.
inline bool fits_a_frame(const v1::Envelope& message) {
  const auto head = wire::encode_head(message, 0, {});
  return head.ok() && wire::parse_header(head->span().subspan(wire::kPrefixBytes)).ok();
}

// That `child` is under `parent`, as the coordinator says.
inline v1::Signed lease_of(const World& world, HostId child, HostId parent, Epoch epoch) {
  const bool at_root = parent == kRoot;
  const round::LeaseTerms terms{node_of(child),
                                identity_of(world, child).key.id(),
                                epoch,
                                at_root ? NodeId(0) : node_of(parent),
                                at_root ? Digest{} : identity_of(world, parent).key.id(),
                                round::HistoryId(0)};
  return tree::sign_lease(key_of(kRoot), terms, WallTime()).value();
}

// A process of shipped code, or one that speaks as the fuzzer says.
class TownNode : public simulator::Node {
 public:
  TownNode(World& world, HostId host)
      : Node(world, host, world.host(host).role, [&world](HostId id) { return identity_of(world, id); }, {}) {}
};

// Whoever connects to it is greeted and given a lease, or heard.
class Parent final : public TownNode {
 public:
  struct Events {
    std::function<HostId(NodeId)> parent_for;              // of whoever comes for a lease
    std::function<void(NodeId, const net::Frame&)> heard;  // from a member
  };
  Parent(World& world, HostId host, const Events& events) : TownNode(world, host), events_(events) {}
  ~Parent() override { take_down(); }
  void start() override {}

  // To the member whose session is up; nothing otherwise.
  void say(v1::Envelope message, SharedBytes payload = {}) {
    if (session_ && fits_a_frame(message)) session_->post({std::move(message), std::move(payload)});
  }
  bool is_connected() const { return session_ != nullptr && session_->is_open(); }
  std::uint64_t sessions() const { return sessions_; }
  void cut() {
    if (session_) session_->close({Code::kUnavailable, "cut"}, false);
  }

 private:
  net::Awaitable<void> serve(std::shared_ptr<net::Session> session) override {
    const Result<net::Frame> hello = co_await session->receive();
    if (!hello.ok() || !hello->header.has_hello()) co_return;
    v1::Envelope welcome;
    welcome.mutable_welcome()->set_protocol(hello->header.hello().protocol_max());
    welcome.mutable_welcome()->set_software("fuzz");
    session->post({std::move(welcome), {}});
    if (hello->header.hello().lease_epoch() == 0) {
      co_await grant(std::move(session));
      co_return;
    }
    session_ = session;
    ++sessions_;
    for (;;) {
      const Result<net::Frame> frame = co_await session->receive();
      if (!frame.ok()) break;
      events_.heard(session->member().node, *frame);
    }
    if (session_ == session) session_.reset();
  }

  net::Awaitable<void> grant(std::shared_ptr<net::Session> session) {
    const Result<net::Frame> asked = co_await session->receive();
    if (!asked.ok() || !asked->header.has_lease_request()) co_return;
    const HostId child(session->member().node.value() - 1);
    const HostId parent = events_.parent_for(session->member().node);
    v1::Envelope reply;
    v1::LeaseGrant& grant = *reply.mutable_lease_grant();
    grant.set_epoch(++epoch_);
    v1::Parent& named = *grant.add_parents();
    named.set_name(world().host(parent).name);
    if (parent != kRoot) {
      named.set_node(node_of(parent).value());
      named.set_address("host:" + std::to_string(parent.value()));
      named.set_key_sha256(wire::digest_to_proto(identity_of(world(), parent).key.id()));
    }
    *grant.add_leases() = lease_of(world(), child, parent, Epoch(epoch_));
    session->post({std::move(reply), {}});
    static_cast<void>(co_await session->receive());  // until it has gone
  }

  const Events& events_;
  std::shared_ptr<net::Session> session_;
  std::uint64_t sessions_ = 0;
  std::uint64_t epoch_ = 0;
};

inline void run_for(World& world, Duration duration) {
  const TimePoint end = world.scheduler().now() + duration;
  while (world.step(end)) continue;
}

// Until it holds, or the limit in virtual time is over.
template <typename Holds>
bool run_until(World& world, Duration most, const Holds& holds) {
  const TimePoint end = world.scheduler().now() + most;
  while (!holds()) {
    if (!world.step(end)) return holds();
  }
  return true;
}

inline void check_world(const World& world) {
  for (const simulator::Violation& violation : world.violations()) {
    FLUVIAL_CHECK(false, violation.invariant + ": " + violation.detail);
  }
}

inline simulator::Scenario quiet_scenario() {
  simulator::Scenario scenario;
  scenario.session.reconnect_delay_min = std::chrono::milliseconds(10);
  scenario.session.reconnect_delay_max = std::chrono::milliseconds(200);
  for (simulator::LinkScenario* link :
       {&scenario.site_links, &scenario.aggregator_links, &scenario.coordinator_links}) {
    link->delay = std::chrono::microseconds(100);
    link->jitter = Duration(0);
  }
  scenario.disk.operation = Duration(0);
  return scenario;
}

}  // namespace fluvial::fuzz

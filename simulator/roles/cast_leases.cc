// Who poses as whom: at another's address, or under a lease that nobody gave; and who was really let in.
#include <algorithm>

#include "simulator/roles/cast.h"

namespace fluvial::simulator {
namespace {

constexpr std::uint64_t kPosesOnceIn = 8;    // connects, where an aggregator lies
constexpr std::uint64_t kInventsOnceIn = 4;  // hellos of a malicious site

}  // namespace

HostId Cast::who_answers_at(HostId child, const std::string& address) {
  const HostId meant = host_at(address);
  if (meant == kRoot || is_malicious(meant) || !world_.faults_on()) return meant;
  std::vector<HostId> impostors;
  for (const HostId host : malicious_) {
    if (host != child && world_.host(host).role == Role::kAggregator) impostors.push_back(host);
  }
  if (impostors.empty() || impostors_rng_.below(kPosesOnceIn) != 0) return meant;
  return impostors[impostors_rng_.below(impostors.size())];
}

void Cast::hello(HostId host, v1::Envelope* message) {
  if (message->has_hello() && message->hello().lease_epoch() != 0) {
    if (!thieves_.contains(host)) hellos_[host] = message->hello();
    const auto former = former_.find(host);
    if (thieves_.contains(host) && former->second.hello.lease_epoch() != 0) {
      const std::uint64_t incarnation = message->hello().incarnation();
      *message->mutable_hello() = former->second.hello;
      message->mutable_hello()->set_incarnation(incarnation + 1'000'000);  // nothing that it says of itself helps it
    }
  }
  if (older_.contains(host)) {
    if (message->has_hello()) message->mutable_hello()->clear_lease();
    if (message->has_lease_request()) message->mutable_lease_request()->clear_shows_lease();
  }
  if (!message->has_hello() || message->hello().lease_epoch() == 0 || !is_malicious(host) || !world_.faults_on())
    return;
  if (inventions_rng_.below(kInventsOnceIn) != 0) return;
  v1::Hello& hello = *message->mutable_hello();
  switch (inventions_rng_.below(4)) {
    case 0: hello.set_lease_epoch(hello.lease_epoch() + 1 + inventions_rng_.below(3)); break;
    case 1:
      hello.clear_lease();
      hello.set_lease_epoch(1 + inventions_rng_.below(hello.lease_epoch()));
      break;
    case 2: hello.set_history(inventions_rng_.next()); break;
    default: {
      std::string& body = *hello.mutable_lease()->mutable_body();
      if (!body.empty()) body[inventions_rng_.below(body.size())] ^= 1;
    }
  }
}

bool Cast::lies_come_from_below(HostId aggregator) const {
  return std::ranges::any_of(malicious_, [&](HostId host) {
    return world_.host(host).role == Role::kAggregator && world_.host(host).tier > world_.host(aggregator).tier;
  });
}

void Cast::child_joined(HostId parent, const tree::Child& child) {
  if (is_malicious(parent)) return;  // it takes everybody
  const NodeId own = parent == kRoot ? NodeId(0) : identity(parent).node;
  if (granted_.contains({child.node, own, child.lease})) return;
  world_.violate("leased", identity(parent).name + " took in node " + std::to_string(child.node.value()) +
                               " under lease " + std::to_string(child.lease.value()) + ", which nobody gave");
}

void Cast::parent_up(HostId child, const tree::Lease& lease, HostId answered) {
  const NodeId is = answered == kRoot ? NodeId(0) : identity(answered).node;
  if (is == lease.parent) return;
  world_.violate("leased_parent", identity(child).name + " has a lease under " + lease.parent_name +
                                      " and is a child of " + identity(answered).name);
}

}  // namespace fluvial::simulator

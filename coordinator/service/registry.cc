#include "coordinator/service/registry.h"

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <utility>

#include "coordinator/logic/layout.h"
#include "core/net/connector.h"
#include "core/wire/mapping.h"

namespace fluvial::coordinator {

Status Registry::load() {
  FLUVIAL_ASSIGN(const std::vector<store::NodeRow> nodes, journal_.nodes());
  for (const store::NodeRow& row : nodes) nodes_[row.id] = row;
  FLUVIAL_ASSIGN(const std::vector<store::LeaseRow> leases, journal_.leases());
  for (const store::LeaseRow& row : leases) leases_[row.node] = row;
  refresh_deny_list();
  return {};
}

void Registry::refresh_deny_list() {
  identity::DenyEntries entries;
  for (const auto& [id, row] : nodes_) {
    if (row.revoked_at) entries.nodes.insert(id);
  }
  deny_->replace(std::move(entries));
}

std::map<NodeId, std::size_t> Registry::children_by_lease() const {
  std::map<NodeId, std::size_t> children;
  for (const auto& [node, lease] : leases_) ++children[lease.parent];
  return children;
}

net::Awaitable<Result<v1::LeaseGrant>> Registry::lease(identity::PeerIdentity peer, std::string advertise) {
  const auto found = nodes_.find(peer.node);
  if (found == nodes_.end() || found->second.role != peer.role || found->second.name != peer.name) {
    co_return Error{Code::kUnauthenticated, identity::describe(peer) + " is not enrolled here"};
  }
  if (peer.role == Role::kAggregator) {
    const Result<net::HostPort> address = net::parse_host_port(advertise);
    if (!address.ok()) co_return address.error();
    if (found->second.advertise != advertise) {
      const Status kept = co_await runtime_.pool.run([&] { return journal_.set_advertise(peer.node, advertise); });
      if (!kept.ok()) co_return kept.error();
      nodes_[peer.node].advertise = advertise;
    }
  }
  std::vector<LayoutNode> aggregators;
  for (const auto& [id, row] : nodes_) {
    if (row.role == Role::kAggregator && !row.revoked_at && !row.advertise.empty()) {
      aggregators.push_back({id, row.role, row.region});
    }
  }
  const store::LeaseRow* current = lease_of(peer.node);
  const NodeId parent = choose_parent({peer.node, peer.role, nodes_.at(peer.node).region}, aggregators,
                                      current ? current->parent : NodeId(0), children_by_lease());
  const Result<store::LeaseRow> lease = co_await runtime_.pool.run([&] { return journal_.grant(peer.node, parent); });
  if (!lease.ok()) co_return lease.error();
  leases_[peer.node] = *lease;

  v1::LeaseGrant grant;
  grant.set_epoch(lease->epoch.value());
  v1::Parent& first = *grant.add_parents();
  first.set_node(parent.value());
  first.set_role(wire::role_to_proto(parent == NodeId(0) ? Role::kCoordinator : Role::kAggregator));
  first.set_name(parent == NodeId(0) ? "coordinator" : nodes_.at(parent).name);
  if (parent != NodeId(0)) first.set_address(nodes_.at(parent).advertise);
  co_return grant;
}

Status Registry::may_join(const tree::Child& child) const {
  const store::LeaseRow* lease = lease_of(child.node);
  if (lease == nullptr || lease->parent != NodeId(0) || lease->epoch != child.lease) {
    return Error{Code::kStale, child.name + " holds no current lease under the coordinator"};
  }
  return {};
}

void Registry::child_joined(const tree::Child& child) {
  members_[child.node] = {child.node, child.role, NodeId(0), child.node, child.lease, child.incarnation};
}

void Registry::child_left(NodeId child) {
  std::erase_if(members_, [&](const auto& entry) { return entry.second.via == child; });
}

std::vector<SiteId> Registry::members_changed(NodeId child, const v1::MemberChange& change) {
  std::vector<SiteId> up;
  for (const std::uint32_t node : change.down()) {
    const auto found = members_.find(NodeId(node));
    if (found != members_.end() && found->second.via == child && NodeId(node) != child) members_.erase(found);
  }
  for (const v1::Member& given : change.up()) {
    const NodeId node(given.node());
    const store::LeaseRow* lease = lease_of(node);
    const auto row = nodes_.find(node);
    if (node == child || lease == nullptr || row == nodes_.end() || lease->epoch != Epoch(given.lease_epoch()) ||
        lease->parent != NodeId(given.parent()) || row->second.revoked_at) {
      runtime_.log.warn("a member without a current lease is not counted", {{"node", name_of(node)}});
      continue;
    }
    members_[node] = {node, row->second.role, lease->parent, child, lease->epoch, Incarnation(given.incarnation())};
    if (row->second.role == Role::kSite) up.push_back(node);
  }
  return up;
}

net::Awaitable<Status> Registry::revoke(std::string name, NodeId* revoked) {
  const auto found = std::find_if(nodes_.begin(), nodes_.end(), [&](const auto& e) { return e.second.name == name; });
  if (found == nodes_.end())
    co_return Error{Code::kNotFound, "no node is called '" + name + "'; see: fluvial nodes list"};
  const NodeId node = found->first;
  const WallTime now = runtime_.clock.wall_now();
  const Status kept = co_await runtime_.pool.run([&] { return journal_.revoke(node, now); });
  if (!kept.ok()) co_return kept;
  nodes_[node].revoked_at = now;
  members_.erase(node);
  refresh_deny_list();
  *revoked = node;
  co_return Status{};
}

std::map<SiteId, SiteInfo> Registry::connected_sites() const {
  std::map<SiteId, SiteInfo> sites;
  for (const auto& [id, member] : members_) {
    if (member.role == Role::kSite) sites[id] = {member.lease, nodes_.at(id).weight_max};
  }
  return sites;
}

const store::LeaseRow* Registry::lease_of(NodeId node) const {
  const auto found = leases_.find(node);
  return found == leases_.end() ? nullptr : &found->second;
}

std::string Registry::name_of(NodeId node) const {
  const auto found = nodes_.find(node);
  return found == nodes_.end() ? "node " + std::to_string(node.value()) : found->second.name;
}

NodeId Registry::branch(NodeId node) const {
  // Leases cannot form a circle: a parent's region is strictly shorter. The bound is for a journal that says otherwise.
  for (std::size_t steps = 0; steps <= nodes_.size(); ++steps) {
    const store::LeaseRow* lease = lease_of(node);
    if (lease == nullptr) return NodeId(0);
    if (lease->parent == NodeId(0)) return node;
    node = lease->parent;
  }
  return NodeId(0);
}

NodeId Registry::via(NodeId node) const {
  const auto found = members_.find(node);
  return found == members_.end() ? NodeId(0) : found->second.via;
}

}  // namespace fluvial::coordinator

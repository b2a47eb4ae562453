#include "coordinator/service/registry.h"

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <utility>

#include "core/net/connector.h"
#include "core/wire/history_mapping.h"
#include "core/wire/mapping.h"

namespace fluvial::coordinator {
namespace {

NodeEntry from_row(const store::NodeRow& row) {
  NodeEntry node;
  node.id = row.id;
  node.role = row.role;
  node.name = row.name;
  node.region = row.region;
  node.weight_max = row.weight_max;
  node.advertise = row.advertise;
  node.enrolled_at = row.enrolled_at;
  node.revoked_at = row.revoked_at;
  node.quarantined_at = row.quarantined_at;
  node.quarantine_reason = row.quarantine_reason;
  node.certificate_serial = row.certificate_serial;
  node.removed_at = row.removed_at;
  return node;
}

LeaseEntry from_row(const store::LeaseRow& row) { return {row.node, row.parent, row.epoch}; }

}  // namespace

std::string_view Registry::known_name(const store::LostRow& row) const {
  const auto node = book_.nodes().find(row.site);
  if (node == book_.nodes().end() || node->second.role != Role::kSite) return "";
  if (row.known.counted) return "counted";
  return row.known.decided ? "not counted" : "waited";
}

v1::LeaseGrant Registry::to_proto(const LeaseAnswer& answer) const {
  v1::LeaseGrant grant;
  grant.set_epoch(answer.epoch.value());
  v1::Parent& parent = *grant.add_parents();
  parent.set_node(answer.parent.value());
  parent.set_role(wire::role_to_proto(answer.parent_role));
  parent.set_name(answer.parent_name);
  parent.set_address(answer.address);
  wire::to_proto(lineage_, grant.mutable_histories());
  return grant;
}

Status Registry::load() {
  FLUVIAL_ASSIGN(const std::vector<store::NodeRow> nodes, journal_.nodes());
  for (const store::NodeRow& row : nodes) book_.put(from_row(row), now());
  FLUVIAL_ASSIGN(const std::vector<store::LeaseRow> leases, journal_.leases());
  for (const store::LeaseRow& row : leases) book_.put(from_row(row));
  FLUVIAL_ASSIGN(lineage_, journal_.lineage());
  FLUVIAL_ASSIGN(lost_, journal_.lost());
  refresh_deny_list();
  return {};
}

void Registry::refresh_deny_list() {
  identity::DenyEntries entries;
  for (const auto& [id, node] : book_.nodes()) {
    if (node.revoked_at) entries.nodes.insert(id);
    entries.serials_hex[id] = node.certificate_serial;
  }
  deny_->replace(std::move(entries));
}

net::Awaitable<Result<LeaseAnswer>> Registry::lease(identity::PeerIdentity peer, v1::LeaseRequest request) {
  if (peer.role == Role::kAggregator) {
    const Result<net::HostPort> address = net::parse_host_port(request.advertise());
    if (!address.ok()) co_return address.error();
  }
  const LeaseAsk ask{peer.node, peer.role, peer.name, request.advertise(), NodeId(request.unreachable())};
  const Result<LeaseWanted> wanted = book_.request_lease(ask, now());
  if (!wanted.ok()) co_return wanted.error();
  const Status met = co_await meet(peer.node, request.standing());
  if (!met.ok()) co_return met.error();
  const Result<store::LeaseRow> row = co_await runtime_.pool.run([&]() -> Result<store::LeaseRow> {
    if (wanted->advertise) FLUVIAL_TRY(journal_.set_advertise(wanted->node, *wanted->advertise));
    return journal_.grant(wanted->node, wanted->parent);
  });
  if (!row.ok()) co_return row.error();
  co_return book_.lease_granted(*wanted, from_row(*row), now());
}

// Before it is granted anything: what it knows must be in the journal, or be lost with a restore.
net::Awaitable<Status> Registry::meet(NodeId node, v1::Standing shown) {
  const Result<round::Standing> standing = wire::from_proto(shown);
  if (!standing.ok()) co_return standing.error();
  const WallTime when = runtime_.clock.wall_now();
  const auto lost = co_await runtime_.pool.run([&] { return journal_.meet(node, *standing, when); });
  if (lost.ok()) {
    ahead_.erase(node);
    note_lost(*lost);
    co_return Status{};
  }
  if (lost.error().code == Code::kFailedPrecondition && ahead_[node] != lost.error().message) {
    ahead_[node] = lost.error().message;
    runtime_.log.error("a member knows more than the journal; it gets no lease until that is settled",
                       {{"member", book_.name_of(node)}, {"reason", lost.error().message}});
  }
  co_return lost.error();
}

void Registry::note_lost(const std::vector<store::LostRow>& rows) {
  for (const store::LostRow& row : rows) {
    const auto same = [&](const store::LostRow& known) {
      return known.site == row.site && known.known.run == row.known.run && known.known.round == row.known.round;
    };
    if (const auto known = std::ranges::find_if(lost_, same); known != lost_.end()) {
      *known = row;
      continue;
    }
    lost_.push_back(row);
    runtime_.log.warn("a round is lost with the history before; its number is given out again",
                      {{"run", row.known.run},
                       {"round", row.known.round},
                       {"member", book_.name_of(row.site)},
                       {"outcome", known_name(row)}});
  }
}

bool Registry::enrolled(const store::NodeRow& row) {
  const bool replaced = book_.put(from_row(row), now());
  refresh_deny_list();  // a new token lifts a revocation, and voids the certificate before
  return replaced;
}

void Registry::child_joined(const tree::Child& child) {
  book_.child_joined(child.node, child.lease, child.incarnation, now());
}

std::vector<SiteId> Registry::members_changed(NodeId child, const v1::MemberChange& change) {
  std::vector<MemberUp> up;
  for (const v1::Member& member : change.up()) {
    up.push_back({NodeId(member.node()), NodeId(member.parent()), Epoch(member.lease_epoch()),
                  Incarnation(member.incarnation())});
  }
  std::vector<NodeId> down;
  for (const std::uint32_t node : change.down()) down.emplace_back(node);
  MembersChanged changed = book_.members_changed(child, up, down, now());
  for (const NodeId node : changed.not_counted) {
    runtime_.log.warn("a member without a current lease is not counted; it comes for one",
                      {{"member", book_.name_of(node)}});
  }
  return std::move(changed.sites_up);
}

net::Awaitable<Result<NodeId>> Registry::revoke(std::string name) {
  const Result<NodeId> node = book_.find(name);
  if (!node.ok()) co_return node.error();
  const WallTime when = runtime_.clock.wall_now();
  const Status kept = co_await runtime_.pool.run([&] { return journal_.revoke(*node, when); });
  if (!kept.ok()) co_return kept.error();
  book_.revoked(*node, when, now());
  refresh_deny_list();
  co_return *node;
}

net::Awaitable<Result<NodeId>> Registry::remove(std::string name) {
  const Result<NodeId> node = book_.find(name);
  if (!node.ok()) co_return node.error();
  if (book_.members().contains(*node)) {  // a revoked one is no member
    co_return Error{Code::kFailedPrecondition,
                    name + " is connected: stop it, or shut it out before: fluvial nodes revoke " + name};
  }
  const WallTime when = runtime_.clock.wall_now();
  const Status kept = co_await runtime_.pool.run([&] { return journal_.remove(*node, when); });
  if (!kept.ok()) co_return kept.error();
  book_.removed(*node, when, now());
  refresh_deny_list();
  co_return *node;
}

net::Awaitable<Status> Registry::quarantine(SiteId site, std::string reason) {
  if (!book_.nodes().contains(site) || book_.is_quarantined(site)) co_return Status{};
  const WallTime when = runtime_.clock.wall_now();
  book_.quarantined(site, when, reason);  // at once: what is sampled next must not hold it
  co_return co_await runtime_.pool.run([&] { return journal_.quarantine(site, when, reason); });
}

net::Awaitable<Result<NodeId>> Registry::clear(std::string name) {
  const Result<NodeId> node = book_.find(name);
  if (!node.ok()) co_return node.error();
  if (!book_.is_quarantined(*node)) {
    co_return Error{Code::kFailedPrecondition, name + " is not in quarantine; see: fluvial nodes list"};
  }
  const Status kept = co_await runtime_.pool.run([&] { return journal_.clear_quarantine(*node); });
  if (!kept.ok()) co_return kept.error();
  book_.cleared(*node);
  co_return *node;
}

}  // namespace fluvial::coordinator

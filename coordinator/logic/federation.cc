#include "coordinator/logic/federation.h"

#include <algorithm>

#include "core/base/name_key.h"

namespace fluvial::coordinator {

// ---- what the journal holds ---------------------------------------------------------------------------------------

bool Federation::put(NodeEntry node, TimePoint now) {
  const NodeId id = node.id;
  const bool is_aggregator = node.role == Role::kAggregator;
  const auto before = nodes_.find(id);
  const bool replaced = before != nodes_.end() && before->second.certificate_serial != node.certificate_serial;
  nodes_[id] = std::move(node);
  stays_.try_emplace(id, Stay{false, false, now});
  if (replaced) {
    if (leases_.contains(id)) void_leases_.insert(id);
    erase_members(now, [&](const Member& member) { return member.node == id; });
  }
  if (is_aggregator) {
    presence_.try_emplace(id, Presence{now, false, false});
    for (const auto& [child, lease] : leases_) note_displaced(lease);
  }
  return replaced;
}

void Federation::certificate_changed(NodeId node, std::string serial) {
  const auto entry = nodes_.find(node);
  if (entry != nodes_.end()) entry->second.certificate_serial = std::move(serial);
}

void Federation::put(const LeaseEntry& lease) {
  if (const LeaseEntry* before = lease_of(lease.node)) --children_[before->parent];
  ++children_[lease.parent];
  leases_[lease.node] = lease;
  note_displaced(lease);
}

void Federation::revoked(NodeId node, WallTime when, TimePoint now) {
  NodeEntry& entry = nodes_.at(node);
  if (!entry.revoked_at) entry.revoked_at = when;
  erase_members(now, [&](const Member& member) { return member.node == node; });
  if (entry.role != Role::kAggregator) return;
  for (const auto& [child, lease] : leases_) note_displaced(lease);
}

void Federation::removed(NodeId node, WallTime when, TimePoint now) {
  revoked(node, when, now);
  nodes_.at(node).removed_at = when;
}

void Federation::quarantined(SiteId site, WallTime when, std::string reason) {
  NodeEntry& entry = nodes_.at(site);
  if (entry.quarantined_at) return;
  entry.quarantined_at = when;
  entry.quarantine_reason = std::move(reason);
}

void Federation::cleared(SiteId site) {
  NodeEntry& entry = nodes_.at(site);
  entry.quarantined_at.reset();
  entry.quarantine_reason.clear();
}

// ---- who may be whose parent --------------------------------------------------------------------------------------

bool Federation::serves(NodeId aggregator, TimePoint now) const {
  const auto found = presence_.find(aggregator);
  if (found == presence_.end()) return false;
  return found->second.up || now - found->second.since < settings_.failover_after;
}

bool Federation::is_settled(NodeId aggregator, TimePoint now) const {
  const auto found = presence_.find(aggregator);
  return found != presence_.end() && found->second.up && now - found->second.since >= settings_.return_after;
}

bool Federation::is_avoided(NodeId node, NodeId aggregator, TimePoint now) const {
  const auto found = avoid_until_.find({node, aggregator});
  return found != avoid_until_.end() && now < found->second;
}

template <typename Serves>
NodeId Federation::parent_for(const NodeEntry& node, const Serves& is_serving) const {
  std::vector<LayoutNode> aggregators;
  for (const auto& [id, presence] : presence_) {
    const NodeEntry& entry = nodes_.at(id);
    if (entry.revoked_at || entry.advertise.empty() || !is_serving(id)) continue;
    aggregators.push_back({id, entry.role, entry.region});
  }
  const LeaseEntry* current = lease_of(node.id);
  return choose_parent({node.id, node.role, node.region}, aggregators, current ? current->parent : NodeId(0),
                       children_);
}

// The coordinator is the farthest parent; of the aggregators that contain a node, the longest region is the nearest.
std::ptrdiff_t Federation::nearness(NodeId parent) const {
  return parent == NodeId(0) ? -1 : static_cast<std::ptrdiff_t>(nodes_.at(parent).region.size());
}

void Federation::note_displaced(const LeaseEntry& lease) {
  const auto node = nodes_.find(lease.node);
  const bool known = node != nodes_.end() && (lease.parent == NodeId(0) || nodes_.contains(lease.parent));
  if (known && nearness(parent_for(node->second, [](NodeId) { return true; })) > nearness(lease.parent)) {
    displaced_.insert(lease.node);
  } else {
    displaced_.erase(lease.node);
  }
}

// ---- leases -------------------------------------------------------------------------------------------------------

void Federation::note_asked(const LeaseAsk& ask, TimePoint now) {
  std::erase_if(avoid_until_, [&](const auto& entry) { return entry.second <= now; });
  if (const auto asking = presence_.find(ask.node); asking != presence_.end()) {
    // It is about to come, so its children wait for it; but not again each time that it asks and does not come.
    Presence& presence = asking->second;
    if (!presence.up && !std::exchange(presence.asked, true)) presence.since = now;
  }
  // An absent parent is given up by its time away; one that has only just come may have been away when it was tried.
  const auto tried = presence_.find(ask.unreachable);
  if (tried != presence_.end() && tried->second.up && now - tried->second.since >= settings_.failover_after) {
    avoid_until_[{ask.node, ask.unreachable}] = now + settings_.unreachable_for;
  }
}

Result<LeaseWanted> Federation::request_lease(const LeaseAsk& ask, TimePoint now) {
  const auto found = nodes_.find(ask.node);
  if (found == nodes_.end() || found->second.role != ask.role || found->second.name != ask.name) {
    return Error{Code::kUnauthenticated, std::string(role_name(ask.role)) + " '" + ask.name + "' (node " +
                                             std::to_string(ask.node.value()) + ") is not enrolled here"};
  }
  const NodeEntry& node = found->second;
  if (node.revoked_at) return Error{Code::kUnauthenticated, node.name + " was revoked"};
  note_asked(ask, now);
  LeaseWanted wanted{node.id, NodeId(0), {}};
  wanted.parent =
      parent_for(node, [&](NodeId parent) { return serves(parent, now) && !is_avoided(node.id, parent, now); });
  if (node.role == Role::kAggregator && node.advertise != ask.advertise) wanted.advertise = ask.advertise;
  return wanted;
}

Result<LeaseAnswer> Federation::lease_granted(const LeaseWanted& wanted, const LeaseEntry& lease, TimePoint now) {
  if (wanted.advertise) {
    NodeEntry node = nodes_.at(wanted.node);
    node.advertise = *wanted.advertise;
    put(std::move(node), now);
  }
  const LeaseEntry* before = lease_of(lease.node);
  if (before != nullptr && before->epoch > lease.epoch) {
    return Error{Code::kStale, "a newer lease was granted meanwhile: come again"};
  }
  LeaseAnswer answer{lease.epoch, lease.parent, Role::kCoordinator, "coordinator", "", false};
  if (lease.parent != NodeId(0)) {
    const NodeEntry& parent = nodes_.at(lease.parent);
    answer.parent_role = Role::kAggregator;
    answer.parent_name = parent.name;
    answer.address = parent.advertise;
  }
  answer.moved = before != nullptr && before->epoch != lease.epoch;
  put(lease);
  void_leases_.erase(lease.node);
  // Members that were announced by the old way count as away until they are announced by the new one.
  if (answer.moved) {
    const bool alone = nodes_.at(lease.node).role == Role::kSite;
    erase_members(now, [&](const Member& member) {
      if (member.node == lease.node) return true;
      return !alone && branch(member.node) != member.via;
    });
  }
  return answer;
}

Status Federation::may_join(NodeId node, Epoch lease) const {
  const LeaseEntry* held = lease_of(node);
  if (held == nullptr || held->parent != NodeId(0) || held->epoch != lease || void_leases_.contains(node)) {
    return Error{Code::kStale, name_of(node) + " holds no current lease under the coordinator"};
  }
  return {};
}

// ---- connected members --------------------------------------------------------------------------------------------

template <typename Gone>
void Federation::erase_members(TimePoint now, const Gone& is_gone) {
  std::erase_if(members_, [&](const auto& entry) {
    const Member& member = entry.second;
    if (!is_gone(member)) return false;
    leaving_.erase(member.node);
    stays_[member.node] = {false, true, now};
    if (const auto found = presence_.find(member.node); found != presence_.end()) {
      found->second = Presence{now, false, false};
    }
    return true;
  });
}

void Federation::came(const Member& member, TimePoint now) {
  members_[member.node] = member;
  if (Stay& stay = stays_[member.node]; !stay.here) stay = {true, true, now};
  leaving_.erase(member.node);
  const auto found = presence_.find(member.node);
  if (found != presence_.end() && !found->second.up) found->second = Presence{now, true, false};
}

void Federation::child_joined(NodeId node, Epoch lease, Incarnation incarnation, TimePoint now) {
  came({node, nodes_.at(node).role, NodeId(0), node, lease, incarnation}, now);
}

void Federation::child_left(NodeId child, TimePoint now) {
  erase_members(now, [&](const Member& member) { return member.via == child; });
}

MembersChanged Federation::members_changed(NodeId child, const std::vector<MemberUp>& up,
                                           const std::vector<NodeId>& down, TimePoint now) {
  MembersChanged changed;
  const std::set<NodeId> gone(down.begin(), down.end());
  if (!gone.empty()) {
    erase_members(now, [&](const Member& member) {
      return member.via == child && member.node != child && gone.contains(member.node);
    });
  }
  for (const MemberUp& given : up) {
    const LeaseEntry* lease = lease_of(given.node);
    const auto node = nodes_.find(given.node);
    const bool current = lease != nullptr && node != nodes_.end() && lease->epoch == given.lease &&
                         lease->parent == given.parent && !node->second.revoked_at &&
                         !void_leases_.contains(given.node);
    // A former parent may go on announcing the members below a node that moved.
    if (given.node == child || !current || branch(given.node) != child) {
      changed.not_counted.push_back(given.node);
      continue;
    }
    came({given.node, node->second.role, lease->parent, child, lease->epoch, given.incarnation}, now);
    if (node->second.role == Role::kSite) changed.sites_up.push_back(given.node);
  }
  return changed;
}

// ---- going home ---------------------------------------------------------------------------------------------------

std::vector<NodeId> Federation::send_home(TimePoint now) {
  std::vector<NodeId> home;
  for (const NodeId node : displaced_) {
    const auto member = members_.find(node);
    if (member == members_.end() || leaving_.contains(node)) continue;
    const NodeId parent = parent_for(nodes_.at(node), [&](NodeId aggregator) {
      return is_settled(aggregator, now) && !is_avoided(node, aggregator, now);
    });
    if (nearness(parent) > nearness(member->second.parent)) home.push_back(node);
  }
  leaving_.insert(home.begin(), home.end());
  return home;
}

std::optional<TimePoint> Federation::next_home(TimePoint now) const {
  const bool any = std::any_of(displaced_.begin(), displaced_.end(),
                               [&](NodeId node) { return members_.contains(node) && !leaving_.contains(node); });
  if (!any) return std::nullopt;
  TimePoint next = now + settings_.return_after;
  const auto consider = [&](TimePoint at) {
    if (at > now) next = std::min(next, at);
  };
  for (const auto& [aggregator, presence] : presence_) {
    if (presence.up) consider(presence.since + settings_.return_after);
  }
  for (const auto& [pair, until] : avoid_until_) consider(until);
  return next;
}

// ---- going past ---------------------------------------------------------------------------------------------------

namespace {
std::string seconds_since(TimePoint from, TimePoint to) {
  return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(std::max(Duration(0), to - from)).count()) +
         " s";
}
}  // namespace

std::string Federation::absence_of(NodeId aggregator, NodeId from, TimePoint now) const {
  const NodeEntry& entry = nodes_.at(aggregator);
  const Presence& presence = presence_.at(aggregator);
  if (entry.advertise.empty()) return "has enrolled and never come";
  if (!presence.up) return "is away (" + seconds_since(presence.since, now) + ")";
  if (is_avoided(from, aggregator, now)) {
    return "could not be reached from there at " + entry.advertise + "; tried again in " +
           seconds_since(now, avoid_until_.at({from, aggregator}));
  }
  if (!is_settled(aggregator, now)) {
    return "is back; its children return in " + seconds_since(now, presence.since + settings_.return_after);
  }
  return "is back; its children return between rounds";
}

std::optional<Federation::Detour> Federation::detour_of(NodeId node, TimePoint now) const {
  const LeaseEntry* lease = lease_of(node);
  const auto entry = nodes_.find(node);
  if (lease == nullptr || entry == nodes_.end() || entry->second.revoked_at) return std::nullopt;
  const auto nearest_there_can_be = static_cast<std::ptrdiff_t>(entry->second.region.size());
  if (lease->parent != NodeId(0) && nearness(lease->parent) == nearest_there_can_be) return std::nullopt;
  std::vector<LayoutNode> aggregators;
  for (const auto& [id, presence] : presence_) {
    const NodeEntry& aggregator = nodes_.at(id);
    if (!aggregator.revoked_at) aggregators.push_back({id, aggregator.role, aggregator.region});
  }
  const NodeId nearest =
      choose_parent({node, entry->second.role, entry->second.region}, aggregators, lease->parent, {});
  if (nearest == NodeId(0) || nearness(nearest) <= nearness(lease->parent)) return std::nullopt;
  return Detour{nearest, absence_of(nearest, node, now)};
}

// ---- since when --------------------------------------------------------------------------------------------------

Federation::Stay Federation::stay_of(NodeId node) const {
  const auto found = stays_.find(node);
  return found == stays_.end() ? Stay{} : found->second;
}

NodeId Federation::parent_wished(NodeId node) const {
  const auto entry = nodes_.find(node);
  if (entry == nodes_.end()) return NodeId(0);
  return parent_for(entry->second, [](NodeId) { return true; });
}

// ---- queries ------------------------------------------------------------------------------------------------------

Result<NodeId> Federation::find(const std::string& name) const {
  const auto found = std::find_if(nodes_.begin(), nodes_.end(), [&](const auto& e) { return e.second.name == name; });
  if (found == nodes_.end()) {
    return Error{Code::kNotFound, "no node is called '" + name + "'; see: fluvial nodes list"};
  }
  return found->first;
}

bool Federation::is_below_leaving(NodeId node) const {
  for (std::size_t steps = 0; !leaving_.empty() && steps <= nodes_.size(); ++steps) {
    if (leaving_.contains(node)) return true;
    const LeaseEntry* lease = lease_of(node);
    if (lease == nullptr || lease->parent == NodeId(0)) return false;
    node = lease->parent;
  }
  return false;
}

std::map<SiteId, SiteInfo> Federation::connected_sites() const {
  std::map<SiteId, SiteInfo> sites;
  for (const auto& [id, member] : members_) {
    if (member.role != Role::kSite || is_quarantined(id) || is_below_leaving(id)) continue;
    const NodeEntry& node = nodes_.at(id);
    sites[id] = {member.lease, node.weight_max, name_key(node.name)};
  }
  return sites;
}

const LeaseEntry* Federation::lease_of(NodeId node) const {
  const auto found = leases_.find(node);
  return found == leases_.end() ? nullptr : &found->second;
}

std::string Federation::name_of(NodeId node) const {
  const auto found = nodes_.find(node);
  return found == nodes_.end() ? "node " + std::to_string(node.value()) : found->second.name;
}

bool Federation::is_quarantined(NodeId node) const {
  const auto found = nodes_.find(node);
  return found != nodes_.end() && found->second.quarantined_at.has_value();
}

Status Federation::check_quarantine(SiteId site) const {
  if (!is_quarantined(site)) return {};
  return Error{Code::kPermissionDenied, name_of(site) + " is in quarantine"};
}

std::vector<round::Refusal> Federation::barred_among(const std::vector<round::Participant>& participants) const {
  std::vector<round::Refusal> refusals;
  for (const round::Participant& participant : participants) {
    const SiteId site = participant.site;
    const auto node = nodes_.find(site);
    if (is_quarantined(site)) {
      refusals.push_back({site, {Code::kConflict, "in quarantine"}});
    } else if (node != nodes_.end() && node->second.revoked_at) {
      refusals.push_back(revocation_of(site));
    }
  }
  return refusals;
}

// Its code drops no update: once enrolled again, the site brings its work in a later round.
round::Refusal Federation::revocation_of(SiteId site) const {
  return {site, {Code::kUnauthenticated, name_of(site) + " was revoked"}};
}

NodeId Federation::via(NodeId node) const {
  const auto found = members_.find(node);
  return found == members_.end() ? NodeId(0) : found->second.via;
}

NodeId Federation::branch(NodeId node) const {
  // Leases cannot form a cycle: a parent's region is strictly shorter. The bound guards against a damaged journal.
  for (std::size_t steps = 0; steps <= nodes_.size(); ++steps) {
    const LeaseEntry* lease = lease_of(node);
    if (lease == nullptr) return NodeId(0);
    if (lease->parent == NodeId(0)) return node;
    node = lease->parent;
  }
  return NodeId(0);
}

}  // namespace fluvial::coordinator

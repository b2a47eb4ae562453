#include "aggregator/service/members.h"

#include <algorithm>
#include <vector>

#include "core/base/name_rule.h"
#include "core/wire/mapping.h"

namespace fluvial::aggregator {
namespace {

constexpr int kDepthMax = 8;                // of the tree below a child
constexpr std::size_t kBelowMax = 100'000;  // members of a federation and then some: a child may invent them
constexpr int kMembersAMessage = 10'000;    // of a hundred bytes each

// What this version knows of it, whose lengths are bounded; what else a child may have put there is not kept.
v1::Member known_of(const v1::Member& told) {
  v1::Member member;
  member.set_node(told.node());
  member.set_name(told.name());
  member.set_role(told.role());
  member.set_lease_epoch(told.lease_epoch());
  member.set_incarnation(told.incarnation());
  member.set_parent(told.parent());
  return member;
}

}  // namespace

v1::MemberChange Members::joined(const tree::Child& child) {
  v1::Member member;
  member.set_node(child.node.value());
  member.set_name(child.name);
  member.set_role(wire::role_to_proto(child.role));
  member.set_lease_epoch(child.lease.value());
  member.set_incarnation(child.incarnation.value());
  member.set_parent(self_.value());
  below_[child.node] = {member, child.node};
  v1::MemberChange change;
  *change.add_up() = member;
  return change;
}

v1::MemberChange Members::left(NodeId child) {
  v1::MemberChange change;
  std::erase_if(below_, [&](const auto& entry) {
    if (entry.second.via != child) return false;
    change.add_down(entry.first.value());
    return true;
  });
  return change;
}

bool Members::may_bring(NodeId child, const v1::Member& member) const {
  const NodeId node(member.node());
  const NodeId parent(member.parent());
  if (node == self_ || node == child || (parent != child && via(parent) != child)) return false;
  if (member.name().size() > kNameCharsMax) return false;
  const auto found = below_.find(node);
  if (found == below_.end()) return below_.size() < kBelowMax;
  const v1::Member& known = found->second.member;
  if (found->second.via == child || known.lease_epoch() < member.lease_epoch()) return true;
  // It stays below its parent, which has come by this way.
  return known.lease_epoch() == member.lease_epoch() && known.parent() == member.parent();
}

v1::MemberChange Members::changed(NodeId child, const v1::MemberChange& change) {
  v1::MemberChange holds;
  for (const std::uint32_t node : change.down()) {
    const auto found = below_.find(NodeId(node));
    if (found == below_.end() || found->second.via != child || NodeId(node) == child) continue;
    below_.erase(found);
    holds.add_down(node);
  }
  // Members come in any order, a parent perhaps after its child: what one pass passes over, the next may take.
  std::vector<const v1::Member*> left;
  for (const v1::Member& member : change.up()) left.push_back(&member);
  for (int pass = 0; pass < kDepthMax && !left.empty(); ++pass) {
    std::erase_if(left, [&](const v1::Member* member) {
      if (!may_bring(child, *member)) return false;
      const Below& below = below_[NodeId(member->node())] = {known_of(*member), child};
      *holds.add_up() = below.member;
      return true;
    });
  }
  return holds;
}

std::vector<v1::MemberChange> Members::everybody() const {
  std::vector<v1::MemberChange> everybody(1);
  for (const auto& [node, below] : below_) {
    if (everybody.back().up_size() == kMembersAMessage) everybody.emplace_back();
    *everybody.back().add_up() = below.member;
  }
  return everybody;
}

std::size_t Members::count(Role role) const {
  const auto is_one = [&](const auto& entry) { return entry.second.member.role() == wire::role_to_proto(role); };
  return static_cast<std::size_t>(std::ranges::count_if(below_, is_one));
}

NodeId Members::via(NodeId node) const {
  const auto found = below_.find(node);
  return found == below_.end() ? NodeId(0) : found->second.via;
}

NodeId Members::way_to(const round::Participant& participant) const {
  const auto found = below_.find(participant.site);
  const bool current = found != below_.end() && Epoch(found->second.member.lease_epoch()) == participant.lease;
  return current ? found->second.via : NodeId(0);
}

}  // namespace fluvial::aggregator

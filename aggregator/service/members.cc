#include "aggregator/service/members.h"

#include <algorithm>

#include "core/wire/mapping.h"

namespace fluvial::aggregator {

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

void Members::changed(NodeId child, const v1::MemberChange& change) {
  for (const std::uint32_t node : change.down()) {
    const auto found = below_.find(NodeId(node));
    if (found != below_.end() && found->second.via == child) below_.erase(found);
  }
  for (const v1::Member& member : change.up()) {
    if (NodeId(member.node()) != self_) below_[NodeId(member.node())] = {member, child};
  }
}

v1::MemberChange Members::everybody() const {
  v1::MemberChange everybody;
  for (const auto& [node, below] : below_) *everybody.add_up() = below.member;
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

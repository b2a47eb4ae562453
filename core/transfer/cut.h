// What of an opening or a commit concerns one child: that of the sites below it.
#pragma once

#include <functional>
#include <map>
#include <set>

#include "core/base/ids.h"
#include "core/round/gather.h"
#include "core/round/record.h"
#include "core/round/schema.h"
#include "core/round/told.h"
#include "core/wire/record_mapping.h"

namespace fluvial::transfer {

// The child through which a site is reached, or the site itself; 0 when it is below none.
using Via = std::function<NodeId(SiteId site)>;

// The whole of what the coordinator says, but for the time that is left.
wire::Opening opening_of(const round::AttemptRecord& attempt, const round::Plan& plan, const round::Schema& schema);

// For each of these children, what there is to tell it: participants and who of them is counted are the gather's,
// everything else is the whole's, with the time that is left for this child, and what is here of its last transfer, set
// by the caller. `told` remembers it. A child that there is nothing to tell is not in it.
std::map<NodeId, wire::Opening> cut_openings(const wire::Opening& whole, const round::Gather& gather, round::Told& told,
                                             const std::set<NodeId>& children, const round::Told::Way& way);

// Contributors go down as site, lease, weight and digest. Every child is told of every commit.
std::map<NodeId, wire::Commit> cut_commits(const wire::Commit& whole, const std::set<NodeId>& children, const Via& via);

// The nodes of a parent's children.
template <typename Child>
std::set<NodeId> nodes_of(const std::map<NodeId, Child>& children) {
  std::set<NodeId> nodes;
  for (const auto& [node, child] : children) nodes.insert(nodes.end(), node);
  return nodes;
}

}  // namespace fluvial::transfer

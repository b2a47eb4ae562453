// Cuts an opening or a commit for each child: the part that concerns the sites below it.
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

// The child that leads to a site, or the site itself when it is a child; 0 when it is below no child.
using Via = std::function<NodeId(SiteId site)>;

// The coordinator's opening of the round, except the time that is left. Schedules of the plan's [worker] table are
// plain numbers from here on.
wire::Opening opening_of(const round::AttemptRecord& attempt, const round::Plan& plan, const round::Schema& schema);

// The opening for each of these children that has something to hear. Participants, and which of them are counted, come
// from the gather, everything else from `whole`. The caller sets the time that is left for the child and what is here
// of its last transfer. `told` remembers what is told.
std::map<NodeId, wire::Opening> cut_openings(const wire::Opening& whole, const round::Gather& gather, round::Told& told,
                                             const std::set<NodeId>& children, const round::Told::Way& way);

// The commit for each of these children: every child is told of every commit. Of a contributor only site, lease, weight
// and digest go down.
std::map<NodeId, wire::Commit> cut_commits(const wire::Commit& whole, const std::set<NodeId>& children, const Via& via);

// The nodes of a parent's children.
template <typename Child>
std::set<NodeId> nodes_of(const std::map<NodeId, Child>& children) {
  std::set<NodeId> nodes;
  for (const auto& [node, child] : children) nodes.insert(nodes.end(), node);
  return nodes;
}

}  // namespace fluvial::transfer

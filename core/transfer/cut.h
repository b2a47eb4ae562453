// What of an opening or a commit concerns one child: that of the sites below it.
#pragma once

#include <functional>
#include <optional>

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

// Participants and who of them is counted are the gather's; everything else is the whole's, with the time that is left
// for this child, and what is here of its last transfer, set by the caller. `told` remembers it. None when there is
// nothing to tell this child.
std::optional<wire::Opening> cut_opening(wire::Opening whole, const round::Gather& gather, round::Told& told,
                                         NodeId child, const round::Told::Way& way);

// Contributors go down as site, lease, weight and digest. Every child is told of every commit.
wire::Commit cut_commit(const wire::Commit& whole, NodeId child, const Via& via);

}  // namespace fluvial::transfer

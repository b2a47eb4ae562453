// The last line of `fluvial bench tree`: how near a round came to what its processors must do.
#pragma once

#include "cli/bound/tree_bound.h"
#include "core/base/result.h"

namespace fluvial::cli::bound {

struct Headline {
  MachineCosts machine;
  CodecCosts codec;
  TreeBytes moved;
  TreeBound bound;
  double processor_s = 0;  // the bound
  double ratio = 0;        // the round over it
};

// `moved` is what a round moved over all edges, `round_s` its median. Probes this machine for about two seconds and
// writes into `folder`. Errors of probe_machine() and probe_codec().
Result<Headline> headline(const TreeShape& shape, const std::string& codec, const TreeBytes& moved, double round_s,
                          const std::string& folder);

// What crossed all edges of a tree, from what was counted at a site and at the root: all updates of sites and, with
// aggregators, what reaches the root; a model of fp32 on each edge down. Tiers between regions and root are not counted
// on their way up, so with several it is a little less than what was moved.
TreeBytes moved_bytes(const TreeShape& shape, double up_per_site, double up_into_root);

}  // namespace fluvial::cli::bound

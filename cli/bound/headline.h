// The last line of `fluvial bench tree`: how near a round came to what its processors must do.
#pragma once

#include <optional>
#include <string>

#include "cli/bound/tree_bound.h"
#include "core/base/result.h"

namespace fluvial::cli::bound {

// What was counted of a round: bytes that a site sends, and that arrive at the root; its median time.
struct MeasuredRound {
  double up_per_site = 0;
  double up_into_root = 0;
  double round_s = 0;
};

// A plan's keys.
struct Forms {
  std::string codec = "fp32";
  std::string down = "fp32";
};

struct Headline {
  MachineCosts machine;
  CodecCosts codec;
  DownCosts down;
  TreeBytes moved;
  TreeBound bound;
  double processor_s = 0;     // the bound
  double ratio = 0;           // the measured round over it
  double digested_ratio = 0;  // and over it with the digests
};

// Of a round that was measured, or (none) of what the codecs send. Probes this machine for about two seconds and
// writes into `folder`. Errors of probe_machine(), probe_codec() and probe_down().
Result<Headline> headline(const TreeShape& shape, const Forms& forms, const std::optional<MeasuredRound>& measured,
                          const std::string& folder);

// What crossed all edges of a tree, from what was counted at a site and at the root: all updates of sites and, with
// aggregators, what reaches the root; on each edge down what a warm round sends. Tiers between regions and root are not
// counted on their way up, so with several it is a little less than what was moved.
TreeBytes moved_bytes(const TreeShape& shape, const MeasuredRound& measured, const DownCosts& down);

}  // namespace fluvial::cli::bound

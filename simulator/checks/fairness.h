// Fairness by rate (docs/design/windows.md, "Fairness"), in other words than the services': from all commits of the
// run, each time anew.
#pragma once

#include <cstdint>
#include <map>

#include "core/base/ids.h"
#include "core/round/contribution.h"
#include "core/round/plan.h"
#include "core/store/journal.h"

namespace fluvial::simulator {

using Commits = std::map<RoundId, store::CommitRow>;

// What of 512 parts an update of the site counts for that was admitted on this version.
std::uint32_t fair_share(const Commits& commits, const round::Plan& plan, SiteId site, std::uint64_t admitted);

// In 1/512: what the sum of these is divided by, in the window after `newest`.
std::uint64_t fair_divisor(const Commits& commits, const round::Plan& plan, const round::ContributorSet& in,
                           std::uint64_t newest);

}  // namespace fluvial::simulator

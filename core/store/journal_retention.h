// What the journal knows of rounds that it has pruned. Inside this room only.
#pragma once

#include "core/store/rows.h"
#include "core/store/sqlite.h"

namespace fluvial::store {

Result<bool> is_pruned(Database& database, RunId run, RoundId round);

// Exact for every submission that can be without an outcome. A site has one at a time, and encodes nothing newer before
// it is resolved: so none is older than the newest of the site's updates that was counted, and of that the digest is
// kept. Whoever asks for an older one all the same (its folder is an older copy) is told kCounted, whatever it was: if
// that was wrong its update is lost, while kLate, if that was wrong, would make it count twice.
Result<Outcome> outcome_of_pruned(Database& database, RunId run, RoundId round, SiteId site, const Digest& digest);

}  // namespace fluvial::store

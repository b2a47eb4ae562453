// What the journal knows of rounds that it has pruned. Inside this room only.
#pragma once

#include "core/store/rows.h"
#include "core/store/sqlite.h"

namespace fluvial::store {

// The last round that an update of `round` may enter: its own, unless the run's plan says `late = "next"`.
Result<RoundId> last_to_enter(Database& database, RunId run, RoundId round);

struct Entered {
  RunId run;
  RoundId own;
  RoundId until;
};
// Whether one of these rounds, as far as they are not pruned, holds the update.
Result<bool> is_counted(Database& database, const Entered& rounds, SiteId site, const Digest& digest);

// Exactly once, whatever round an update enters: each contributor's mark rises, or nothing is committed. What its site
// drops is decided as well, and counts in no later round.
Status raise_marks(Database& database, const round::CommitRecord& commit);

Result<bool> is_pruned(Database& database, RunId run, RoundId round);

// Exact for every submission that can still be unresolved. A site has one such submission at a time, and encodes
// nothing newer before it is resolved. So it is never older than the newest update of the site that was counted, whose
// digest is kept. Only a site whose folder is an older copy asks about an older update. It is told kCounted, whatever
// the outcome was: if that is wrong its update is lost, whereas a wrong kLate would make it count twice.
Result<Outcome> outcome_of_pruned(Database& database, RunId run, RoundId round, SiteId site, const Digest& digest);

}  // namespace fluvial::store

// What a commit keeps of a round with several passes (docs/design/phases.md). Inside this room only.
#pragma once

#include "core/round/record.h"
#include "core/store/sqlite.h"

namespace fluvial::store {

// kFailedPrecondition: a site is in a pass, or in the commit, and not in the pass before it.
Status check_passes(const round::CommitRecord& commit);
// Within the commit's transaction.
Status write_passes(Database& database, const round::CommitRecord& commit);
// Of a round that has several, before its contributors are read: they are from the last of these.
Status read_passes(Database& database, round::CommitRecord* commit);
round::MadeFrom made_from(const round::CommitRecord& commit);  // its contributors

}  // namespace fluvial::store

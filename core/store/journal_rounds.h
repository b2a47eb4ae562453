// What runs, attempts and commits ask of each other, within a transaction. Inside this room only.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/store/rows.h"
#include "core/store/sqlite.h"

namespace fluvial::store {

std::string run_and_round(RunId run, RoundId round);  // for errors

Result<std::optional<RunStatus>> status_of(Database& database, RunId run);  // nothing: there is no such run
Result<RoundId> last_round(Database& database, RunId run);                  // that is committed; 0: none
Status check_next_round(Database& database, RunId run, RoundId round);      // kFailedPrecondition: it is another one
Result<std::optional<round::AttemptRecord>> last_attempt_of(Database& database, RunId run);

// Sites and their maximum weights. A round's scale follows from them, so they stay for all of its attempts.
std::map<SiteId, std::uint64_t> weights_of(const std::vector<round::Participant>& participants);

}  // namespace fluvial::store

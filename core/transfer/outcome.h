// The questions of a member that was away: the outcome of its update, and whether a run goes on. The coordinator
// answers from its journal. An OutcomeQuery without a round asks only about the run. The answer is a RunState when the
// run is over, and an OutcomeReply without a round when it goes on.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/store/journal.h"
#include "fluvial/v1/wire.pb.h"

namespace fluvial::transfer {

v1::Envelope outcome_query(RunId run, RoundId round, SiteId site, const Digest& digest);
v1::Envelope run_query(RunId run, NodeId asker);  // a site, or an aggregator

// A child's question as its parent passes it on: of what was asked that which is known. None: it is no question.
std::optional<v1::Envelope> passed_on(const v1::OutcomeQuery& asked);

bool ends_run(std::string_view run_state);    // the name of a status that is_over(); no other word does
bool is_running(std::string_view run_state);  // rounds follow each other; any other word: none is open now

// The replies, in the order in which they must be sent: the end of the run comes before an update's outcome. When the
// journal does not have the run, an update of it is late and there is no reply about the run. Blocking, as the journal
// is. kInvalidArgument: a query with a round and without a digest.
Result<std::vector<v1::Envelope>> answers(store::CoordinatorJournal& journal, const v1::OutcomeQuery& query);

}  // namespace fluvial::transfer

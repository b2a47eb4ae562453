// What several workers brought, as one.
#pragma once

#include <vector>

#include "core/local/task.h"
#include "edge/service/trained.h"

namespace fluvial::edge {

// At least one result. Metrics: the mean weighted by samples, over those workers that report one. kInvalidArgument when
// the weights do not sum to 1 .. 2^29 - 1.
Result<Trained> join_parts(HeldModel base, std::vector<local::TaskResult> results);

}  // namespace fluvial::edge

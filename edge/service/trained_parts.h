// What several workers brought, as one.
#pragma once

#include <cstdint>
#include <vector>

#include "core/local/task.h"
#include "edge/service/trained.h"

namespace fluvial::edge {

// One process' answer.
struct Answer {
  std::string worker;
  local::TaskResult result;
};
// That of a unit: one answer, or one of each rank, by rank.
using UnitAnswers = std::vector<Answer>;

inline constexpr std::size_t kGroupRangesMax = std::size_t{1} << 22;  // of a group's ranks together

// kInvalidArgument when a group's ranks disagree about weight or kind, do not tile the model, or bring too many ranges.
Status check_unit(const UnitAnswers& answers, std::uint64_t model_bytes, std::size_t ranges_max = kGroupRangesMax);

// At least one unit, each checked. Metrics: the mean weighted by samples, over those workers that report one.
// kPermissionDenied: check_weights().
Result<Trained> join_parts(HeldModel base, std::vector<UnitAnswers> units, std::uint64_t weight_max);

}  // namespace fluvial::edge

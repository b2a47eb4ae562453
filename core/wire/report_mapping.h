// Reports of what nodes do, as messages (mapping.h has the rest).
#pragma once

#include <cstddef>
#include <vector>

#include "core/base/result.h"
#include "core/round/report.h"
#include "fluvial/v1/wire.pb.h"

namespace fluvial::wire {

inline constexpr std::size_t kReportedNodesMax = 32;  // in one message: a header has so many messages inside it free

// As many messages as it takes. What a reader would refuse is left out of them.
std::vector<v1::Envelope> to_envelopes(const std::vector<round::NodeReport>& reports);

// kInvalidArgument: too many of something, lists that do not fit together, a time that no clock shows. A word or an
// operation of a later version is passed over, a long note is cut.
Result<std::vector<round::NodeReport>> from_proto(const v1::Report& message);

}  // namespace fluvial::wire

// Histories and what members know of them, as messages (mapping.h has the rest).
#pragma once

#include "core/base/result.h"
#include "core/round/history.h"
#include "fluvial/v1/wire.pb.h"

namespace fluvial::wire {

using HistoryList = google::protobuf::RepeatedPtrField<v1::History>;

void to_proto(const round::Lineage& lineage, HistoryList* out);
Result<round::Lineage> from_proto(const HistoryList& histories);  // checked by round::check_lineage() as well

v1::Standing to_proto(const round::Standing& standing);
Result<round::Standing> from_proto(const v1::Standing& standing);  // kInvalidArgument: too many rounds, a bad digest

}  // namespace fluvial::wire

// A run's status as the machine decides it and as the journal keeps it: the logic knows no store, so there are two, and
// they are told apart and joined here alone.
#pragma once

#include "coordinator/logic/run_machine.h"
#include "core/store/rows.h"

namespace fluvial::coordinator {

static_assert(static_cast<int>(RunStatus::kRunning) == static_cast<int>(store::RunStatus::kRunning));
static_assert(static_cast<int>(RunStatus::kPaused) == static_cast<int>(store::RunStatus::kPaused));
static_assert(static_cast<int>(RunStatus::kStopped) == static_cast<int>(store::RunStatus::kStopped));
static_assert(static_cast<int>(RunStatus::kDone) == static_cast<int>(store::RunStatus::kDone));

inline store::RunStatus to_row(RunStatus status) { return static_cast<store::RunStatus>(status); }
inline RunStatus from_row(store::RunStatus status) { return static_cast<RunStatus>(status); }

}  // namespace fluvial::coordinator

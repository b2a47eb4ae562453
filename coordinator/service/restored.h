// A coordinator's folder that was restored from a backup: a new history of the federation begins in it.
#pragma once

#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/config/settings.h"
#include "core/store/file_system.h"
#include "core/telemetry/log.h"

namespace fluvial::coordinator {

// Once after a restore, before the coordinator is started: models newer than the journal are set aside, then a new
// history begins in the journal (docs/operations/backup.md), above every epoch given before and above `above`.
// Blocking. kFailedPrecondition while a coordinator runs in the folder; kNotFound when there is none in it.
Status mark_restored(const config::CoordinatorSettings& settings, store::FileSystem& files, Epoch above,
                     const telemetry::Logger& log);

}  // namespace fluvial::coordinator

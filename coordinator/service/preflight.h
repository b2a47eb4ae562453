// What is looked at before a coordinator opens anything: settings that only this machine and the data folder can tell
// to be wrong.
#pragma once

#include "core/base/clock.h"
#include "core/base/result.h"
#include "core/config/settings.h"
#include "core/store/file_system.h"
#include "core/store/journal.h"
#include "core/telemetry/log.h"

namespace fluvial::coordinator {

// kInvalidArgument, in a line that names the setting: starting again changes nothing. Changes nothing itself.
Status check_place(const config::CoordinatorSettings& settings, store::FileSystem& files);

// Of a journal that holds none.
Status found_federation(store::CoordinatorJournal& journal, const config::CoordinatorSettings& settings, WallTime now,
                        const telemetry::Logger& log);

}  // namespace fluvial::coordinator

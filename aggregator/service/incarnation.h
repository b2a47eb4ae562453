// How often an aggregator's folder was opened.
#pragma once

#include <string>

#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/store/file_system.h"

namespace fluvial::aggregator {

// 1, 2, ...: kept in the file `path`, which is made when it is not there. Durable when it returns, so that a restarted
// aggregator replaces the session of the one before. kDataLoss when the file holds no such number: to begin at 1 again
// is for a person to decide, as the parent refuses what looks older for as long as it has a session of the one before.
Result<Incarnation> next_incarnation(store::FileSystem& files, const std::string& path);

}  // namespace fluvial::aggregator

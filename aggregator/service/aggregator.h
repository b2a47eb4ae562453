// An aggregator as a process.
#pragma once

#include "core/base/result.h"
#include "core/config/settings.h"
#include "core/telemetry/log.h"
#include "core/tree/process.h"

namespace fluvial::aggregator {

// Blocks until SIGTERM or SIGINT, then drains. `on_ready` is told the ports as a line of JSON once everything listens.
// Errors: what kept it from starting, such as not being enrolled.
Status run_aggregator(config::AggregatorSettings settings, store::FileSystem& files, telemetry::Logger log,
                      tree::OnReady on_ready);

}  // namespace fluvial::aggregator

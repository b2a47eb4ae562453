// The coordinator as a process.
#pragma once

#include "core/base/result.h"
#include "core/config/settings.h"
#include "core/telemetry/log.h"
#include "core/tree/process.h"

namespace fluvial::coordinator {

// Blocks until SIGTERM or SIGINT, then drains. `on_ready` is told the ports, sockets and the pin, as a line of JSON,
// once everything listens. Errors: what kept it from starting.
Status run_coordinator(config::CoordinatorSettings settings, store::FileSystem& files, telemetry::Logger log,
                       tree::OnReady on_ready);

}  // namespace fluvial::coordinator

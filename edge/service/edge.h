// A site's agent: one process that speaks to the parent for the workers of this machine.
#pragma once

#include "core/config/settings.h"
#include "core/telemetry/log.h"
#include "core/tree/process.h"

namespace fluvial::edge {

// Blocks until SIGTERM or SIGINT, then drains and returns. An error is why it could not start, and what to do about it.
// `on_ready` is given {"role":"site","name","worker_socket","metrics_port","pid"} once workers may attach.
Status run_edge(config::EdgeSettings settings, store::FileSystem& files, telemetry::Logger log, tree::OnReady on_ready);

}  // namespace fluvial::edge

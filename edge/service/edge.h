// A site's agent: one process that speaks to the parent for the workers of this machine. Or for many sites.
#pragma once

#include <string>
#include <vector>

#include "core/config/settings.h"
#include "core/telemetry/log.h"
#include "core/tree/process.h"

namespace fluvial::edge {

// Blocks until SIGTERM or SIGINT, then drains and returns. An error is why it could not start, and what to do about it.
// `on_ready` is given {"role":"site","name","worker_socket","metrics_port","pid"} once workers may attach.
Status run_edge(config::EdgeSettings settings, store::FileSystem& files, telemetry::Logger log, tree::OnReady on_ready);

// Most sites that one process takes.
inline constexpr std::size_t kSitesMax = 2'000;

// Likewise of many sites in one process, each with its own identity, store and worker socket: settings of one site
// each, of which the first says what concerns the process (threads, limits of sessions, metrics_listen, proxy);
// `folder` is the process' own. A site that cannot start, or fails, is left out, and the others go on; an error tells
// of it in the end. `on_ready` is given {"role":"site","sites":N,"failed":N,"metrics_port","pid"}.
Status run_sites(std::vector<config::EdgeSettings> sites, const std::string& folder, store::FileSystem& files,
                 telemetry::Logger log, tree::OnReady on_ready);

}  // namespace fluvial::edge

// A round's timeline (GET /v1/rounds/N/timeline) in the Trace Event Format of Chrome, which Perfetto opens. Pure.
//
// A process is a node, the nodes nearer to the coordinator first; a thread is a kind of operation, and as many more of
// it as lay side by side, since what is on one thread must not overlap. The first process has the critical path. Times
// are microseconds from the earliest event on.
#pragma once

#include "cli/json.h"

namespace fluvial::cli {

json::object chrome_trace(const json::value& timeline);

}  // namespace fluvial::cli

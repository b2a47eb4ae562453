// A run on a federation of ours, started the way a person starts one: a plan.toml, read back and posted.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "cli/admin_client.h"
#include "cli/round_view.h"
#include "core/round/plan.h"

namespace fluvial::cli {

// Writes `folder`/plan.toml with `model` (a path relative to it) and starts the run. Its number.
Result<std::uint64_t> start_local_run(const AdminClient& admin, const round::Plan& plan, const std::string& folder,
                                      const std::string& model);

// Shows the run until it is done; then the view is the caller's to finish(). kInternal when it pauses or stops before
// its last round, with the reason. `heard` is told each event, too.
Status watch_local_run(const AdminClient& admin, std::uint64_t run, std::uint64_t rounds, RoundView& view,
                       const std::function<void(const json::value& event)>& heard = {});

Status write_text_file(const std::string& path, const std::string& text);  // whole or not at all

}  // namespace fluvial::cli

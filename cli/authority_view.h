// The certificate authority, and where a rollover stands, as people read it. Pure: GET /v1/authority goes in.
#pragma once

#include <string>

#include "cli/json.h"
#include "cli/terminal.h"

namespace fluvial::cli {

std::string authority_screen(const json::value& authority, const Terminal& terminal);
// For `fluvial status`: who is waited for, in two lines; empty outside of a rollover.
std::string rollover_lines(const json::value& authority, const Terminal& terminal);

}  // namespace fluvial::cli

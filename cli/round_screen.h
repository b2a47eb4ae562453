// What `fluvial rounds list` and `rounds show` print of the admin API's answers. Pure text.
#pragma once

#include <string>

#include "cli/json.h"
#include "cli/terminal.h"

namespace fluvial::cli {

// Of GET /v1/rounds: a line a round; how many of its updates were old, where the run counts such.
std::string rounds_table(const json::value& answer, const Terminal& terminal);
// How much of the run each site has made, where it counts old updates; else empty. `is_part`: not all of its rounds
// are listed.
std::string shares_table(const json::value& answer, bool is_part, const Terminal& terminal);

std::string round_screen(const json::value& round);  // a committed one
std::string open_round_screen(const json::value& open, const Terminal& terminal);

}  // namespace fluvial::cli

// What a run waits for and what is wrong, as the coordinator says it (docs/operations/admin-api.md), in words. Pure
// text.
#pragma once

#include <cstdint>
#include <string>

#include "cli/json.h"
#include "cli/terminal.h"

namespace fluvial::cli {

// "hospital-a: no worker attached; hospital-b: ...; and 3 more".
std::string waits_words(const json::array& waits, std::size_t names_max);
// Only those that do not pass by themselves: what a person would want to be told.
json::array unusual(const json::array& waits);
// "hospital-a, hospital-b and 3 more".
std::string waits_names(const json::array& waits, std::size_t names_max);

// "round 17 open for 12 s (attempt 2): 2 of 4 in, quorum 3" of a run's `open`, "window 17 open for 2 s: 2 of 3 in" with
// its goal; empty when none is open.
std::string open_words(const json::value& open);
bool is_async(const json::value& of);  // an open round, a run or a plan whose rounds are windows
// "16 of 100 rounds committed", or windows.
std::string committed_words(const json::value& run, std::uint64_t committed);
std::uint64_t wanted_in(const json::value& open);  // everybody, or a window's goal
// "pass 1 of 2" of an open round with several; else empty.
std::string pass_words(const json::value& open);

// A line for each tier whose nodes send or fetch: "sites -> aggregators: 3 sending, 40.0 MiB/400.0 MiB, 12 s left".
// Each begins with `indent` blanks. Of a run's `open`, or of GET /v1/rounds/open.
std::string tier_lines(const json::value& open, std::size_t indent);

// A line or two for each wait, with what to do.
std::string waits_block(const json::array& waits, std::size_t most, const Terminal& terminal);
std::string problems_block(const json::array& problems, std::size_t most, const Terminal& terminal);

// `fluvial status`: the whole of GET /v1/status on one screen.
std::string status_screen(const json::value& status, const Terminal& terminal);

// "sending 40 of 400 MiB, 12 s left", "training"; "-" for a node that does not say.
std::string doing_words(const json::value& node);

// Lines of at most `columns`, broken between words; all but the first begin with `indent` blanks.
std::string wrapped(const std::string& text, std::size_t columns, std::size_t indent);

}  // namespace fluvial::cli

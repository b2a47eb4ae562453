// Log lines that a log store can join: constant messages, and fields that a page lists.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "tests/house/files.h"

namespace fluvial::house {

// The names in backticks that open the rows of the page's tables.
std::set<std::string> fields_of(const TextFile& page);

// Each call of a logger's debug(), info(), warn(), error(), log(), with() or as(), as far as it is written in literals:
// the message is put together from nothing else, that of a warning or an error says after "; " what happens next, and
// every field is one of `fields`.
std::vector<Finding> check_logs(const TextFile& source, const std::set<std::string>& fields);

}  // namespace fluvial::house

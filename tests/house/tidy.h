// What is tidy, whatever the room.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/house/files.h"

namespace fluvial::house {

inline constexpr std::size_t kLinesMax = 500;

// Length, tabs, blanks at the end of a line, the last line's end, notes that give no reason.
std::vector<Finding> check_text(const TextFile& file);

// Relative links of a Markdown file, and every page of docs/ that any text names, resolve; `exists` takes a path from
// the root.
using Exists = std::function<bool(const std::string& path)>;
std::vector<Finding> check_links(const TextFile& file, const Exists& exists);

// Each folder has a README.md of its own or beside it, one floor up.
std::vector<Finding> check_readmes(const std::vector<std::string>& folders, const Exists& exists);

}  // namespace fluvial::house

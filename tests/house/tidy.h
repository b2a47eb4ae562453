// What is tidy, whatever the room.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/house/files.h"

namespace fluvial::house {

inline constexpr std::size_t kLinesMax = 500;
inline constexpr std::size_t kFunctionLinesMax = 70;

// Length, tabs, blanks at the end of a line, the last line's end, notes that give no reason.
std::vector<Finding> check_text(const TextFile& file);

// C++ as clang-format leaves it: from a line to the bare `}` below at the same indentation there are at most
// kFunctionLinesMax lines, both counted. So are functions, members and loops held to it; tables (`};`), classes and
// namespaces are not.
std::vector<Finding> check_functions(const TextFile& file);

// Relative links of a Markdown file, and every page of docs/ that any text names, resolve; `exists` takes a path from
// the root.
using Exists = std::function<bool(const std::string& path)>;
std::vector<Finding> check_links(const TextFile& file, const Exists& exists);

// Each folder has a README.md of its own or beside it, one floor up.
std::vector<Finding> check_readmes(const std::vector<std::string>& folders, const Exists& exists);

}  // namespace fluvial::house

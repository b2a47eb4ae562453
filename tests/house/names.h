// Pages that follow the code by name.
#pragma once

#include <vector>

#include "tests/house/files.h"

namespace fluvial::house {

// Each `path/to/file.cc` in a page's backticks is there; each identifier (`name`, `Class::name`) is a word of a file
// that the same line names, or of any source if it names none. Blocks of code are not looked at.
std::vector<Finding> check_names(const TextFile& page, const Tree& tree);

}  // namespace fluvial::house

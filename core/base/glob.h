// Patterns of names, as people write them.
#pragma once

#include <string_view>

namespace fluvial {

// Whether the pattern fits the whole name: * stands for any characters, also none, and ? for one. Time is that of both
// lengths multiplied, at most.
bool fits_glob(std::string_view glob, std::string_view name);

}  // namespace fluvial

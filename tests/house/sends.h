// What becomes of a send that failed.
#pragma once

#include <vector>

#include "tests/house/files.h"

namespace fluvial::house {

// What send(), write_line() and their like return is looked at: it is not cast to void, and no function returns on it
// with nothing said, unless a comment on that line says who knows of the failure.
std::vector<Finding> check_sends(const TextFile& file);

}  // namespace fluvial::house

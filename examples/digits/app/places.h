// Where the images are by default.
#pragma once

#include <filesystem>
#include <string>

#include "core/base/result.h"

namespace fluvial::digits {

// `given`, else $FLUVIAL_DIGITS, else digits.csv.gz as it is installed or in the source tree, seen from the executable.
// kNotFound names the places tried.
Result<std::filesystem::path> find_data(const std::string& given);

}  // namespace fluvial::digits

// Numbers in JSON as a person writes them.
#pragma once

#include <string>
#include <string_view>

namespace fluvial {

// The same JSON with numbers such as 5E-1 and 1.024E3 as 0.5 and 1024.0: the same values bit for bit, without an
// exponent from 1e-5 to below 1e15. Texts, whole numbers and whatever is no JSON stay as they are.
std::string plain_numbers(std::string_view json);

}  // namespace fluvial

// What is checked of a TOML text before its parser sees it. toml++ keeps one table for each segment of a dotted key and
// builds, walks and frees nested tables by recursion: without a bound, one key of 15,000 segments exhausts the stack.
#pragma once

#include <cstddef>
#include <string_view>

#include "core/base/result.h"

namespace fluvial::config {

inline constexpr std::size_t kTomlSegmentsMax = 16;  // of one key: a.b.c has three
inline constexpr std::size_t kTomlNestingMax = 16;   // brackets and braces that are open at a time
inline constexpr std::size_t kTomlKeysMax = 10'000;  // of a text

// kInvalidArgument naming `path`, the line and the bound. One pass over the text, which need not be TOML; allocates
// nothing. Strings and comments are skipped, so their dots and brackets do not count.
Status check_toml_bounds(std::string_view text, std::string_view path);

}  // namespace fluvial::config

// What members, regions and federations may be called.
#pragma once

#include <cstddef>
#include <string_view>

namespace fluvial {

inline constexpr std::size_t kNameCharsMax = 63;

constexpr bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

// 1 to 63 characters: a lower-case letter or digit, then lower-case letters, digits, '.', '_' or '-'.
constexpr bool is_plain_name(std::string_view text) {
  if (text.empty() || text.size() > kNameCharsMax || !is_name_start(text.front())) return false;
  for (const char c : text) {
    if (!is_name_start(c) && c != '.' && c != '_' && c != '-') return false;
  }
  return true;
}

}  // namespace fluvial

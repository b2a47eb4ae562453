#include "core/base/printable.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace fluvial {
namespace {

// Of the UTF-8 character that `text` begins with; 0 when it begins with none. (Unicode 15, table 3-7.)
std::size_t character_bytes(std::string_view text) {
  const auto byte = [text](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto follows = [&](std::size_t i, unsigned low = 0x80, unsigned high = 0xbf) {
    return byte(i) >= low && byte(i) <= high;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return follows(1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const bool second = follows(1, first == 0xe0 ? 0xa0 : 0x80, first == 0xed ? 0x9f : 0xbf);
    return second && follows(2) ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const bool second = follows(1, first == 0xf0 ? 0x90 : 0x80, first == 0xf4 ? 0x8f : 0xbf);
    return second && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

std::uint32_t code_point(std::string_view character) {
  std::uint32_t code = static_cast<unsigned char>(character[0]);
  if (character.size() > 1) code &= 0x7fu >> character.size();
  for (const char byte : character.substr(1)) code = code << 6 | (static_cast<unsigned char>(byte) & 0x3f);
  return code;
}

// C0, DEL and C1; what turns the text around it (U+202E) or ends a line; and what nobody sees, so that two names look
// alike. Joiners (U+200C, U+200D) stay: scripts need them.
bool is_control(std::string_view character) {
  constexpr std::pair<std::uint32_t, std::uint32_t> kRanges[] = {
      {0x00, 0x1f},     {0x7f, 0x9f},     {0x61c, 0x61c},   {0x200b, 0x200b}, {0x200e, 0x200f},
      {0x2028, 0x202e}, {0x2060, 0x206f}, {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe007f}};
  const std::uint32_t code = code_point(character);
  return std::ranges::any_of(kRanges, [&](const auto& range) { return code >= range.first && code <= range.second; });
}

}  // namespace

std::string printable(std::string_view text, std::size_t bytes_max) {
  std::string out;
  while (!text.empty()) {
    const std::size_t size = character_bytes(text);
    if (out.size() + std::max<std::size_t>(size, 1) > bytes_max) break;
    if (size == 0) {
      out.push_back('?');
    } else if (is_control(text.substr(0, size))) {
      out.push_back(' ');
    } else {
      out += text.substr(0, size);
    }
    text.remove_prefix(std::max<std::size_t>(size, 1));
  }
  return out;
}

bool is_printable(std::string_view text) {
  while (!text.empty()) {
    const std::size_t size = character_bytes(text);
    if (size == 0 || is_control(text.substr(0, size))) return false;
    text.remove_prefix(size);
  }
  return true;
}

}  // namespace fluvial

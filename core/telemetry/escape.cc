#include "core/telemetry/escape.h"

#include <fmt/format.h>

#include <cstdint>
#include <iterator>

#include "core/base/printable.h"

namespace fluvial::telemetry {
namespace {

constexpr std::uint32_t kReplacement = 0xfffd;

// One code point from the front of `text`, strictly (no surrogates, nothing overlong); kReplacement takes one byte.
std::uint32_t take_code_point(std::string_view& text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i])); };
  const std::uint32_t first = byte(0);
  std::size_t length = 1;
  std::uint32_t lowest = 0;
  std::uint32_t point = first;
  if (first >= 0xc2 && first <= 0xdf) {
    length = 2, lowest = 0x80, point = first & 0x1f;
  } else if (first >= 0xe0 && first <= 0xef) {
    length = 3, lowest = 0x800, point = first & 0x0f;
  } else if (first >= 0xf0 && first <= 0xf4) {
    length = 4, lowest = 0x10000, point = first & 0x07;
  } else if (first >= 0x80) {
    point = kReplacement;
  }
  for (std::size_t i = 1; i < length; ++i) {
    if (i >= text.size() || (byte(i) & 0xc0) != 0x80) {
      text.remove_prefix(1);
      return kReplacement;
    }
    point = (point << 6) | (byte(i) & 0x3f);
  }
  if (point < lowest || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff)) {
    text.remove_prefix(1);
    return kReplacement;
  }
  text.remove_prefix(length);
  return point;
}

// JSON's way for a code point beyond U+FFFF is two of them.
void append_escape(std::string& out, std::uint32_t point) {
  if (point > 0xffff) {
    fmt::format_to(std::back_inserter(out), "\\u{:04x}", 0xd800 + ((point - 0x10000) >> 10));
    point = 0xdc00 + (point & 0x3ff);
  }
  fmt::format_to(std::back_inserter(out), "\\u{:04x}", point);
}

}  // namespace

void append_escaped(std::string& out, std::string_view text, Quotes quotes) {
  const bool cut = text.size() > kLoggedBytesMax;
  if (cut) text = text.substr(0, kLoggedBytesMax);
  while (!text.empty()) {
    const std::string_view before = text;
    const std::uint32_t point = take_code_point(text);
    if (point == '\\' || (point == '"' && quotes == Quotes::kEscaped)) {
      out += '\\';
      out += static_cast<char>(point);
    } else if (point == '\n') {
      out += "\\n";
    } else if (point == kReplacement) {
      out += "\xef\xbf\xbd";
    } else if (const std::string_view character = before.substr(0, before.size() - text.size());
               !is_printable(character)) {
      append_escape(out, point);
    } else {
      out += character;
    }
  }
  if (cut) out += "...";
}

void append_value(std::string& out, std::string_view text) {
  bool plain = !text.empty();
  for (const char c : text) plain = plain && static_cast<unsigned char>(c) > 0x20 && c != '"' && c != '=' && c != '\\';
  if (!plain) out += '"';
  append_escaped(out, text, Quotes::kEscaped);
  if (!plain) out += '"';
}

}  // namespace fluvial::telemetry

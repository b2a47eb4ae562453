// Text from anywhere, made safe for one line of log: control characters, line separators and what reorders text on a
// terminal are escaped as \uXXXX, bytes that are not UTF-8 become U+FFFD, long text is cut. Inside this room only.
#pragma once

#include <string>
#include <string_view>

namespace fluvial::telemetry {

inline constexpr std::size_t kLoggedBytesMax = 4096;

enum class Quotes { kAsTheyAre, kEscaped };  // '"'; a backslash is always escaped
void append_escaped(std::string& out, std::string_view text, Quotes quotes);
// As a value of the text format: in quotes unless it is a plain word.
void append_value(std::string& out, std::string_view text);

}  // namespace fluvial::telemetry

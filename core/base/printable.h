// Text of others as it may stand in a message, a log line or an answer.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace fluvial {

// At most `bytes_max` of the text, as UTF-8 that begins no line, commands no terminal and turns no text around: a
// control character (of C0, C1, bidirectional, invisible) becomes a blank, a byte that is no UTF-8 becomes '?'.
std::string printable(std::string_view text, std::size_t bytes_max);
bool is_printable(std::string_view text);  // printable() would leave all of it as it is

}  // namespace fluvial

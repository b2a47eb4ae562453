// Text of others as it may stand in a message, a log line or an answer.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace fluvial {

// At most `bytes_max` of the text, as UTF-8 that neither begins a line nor commands a terminal: a control character (of
// C0, DEL or C1) becomes a blank, a byte that is no UTF-8 becomes '?'.
std::string printable(std::string_view text, std::size_t bytes_max);
bool is_printable(std::string_view text);  // printable() would leave all of it as it is

}  // namespace fluvial

#include "core/base/plain_numbers.h"

#include <charconv>
#include <cmath>

namespace fluvial {
namespace {

constexpr double kPlainLeast = 1e-5;
constexpr double kPlainBelow = 1e15;

bool is_in_number(char c) { return (c >= '0' && c <= '9') || c == '.' || c == 'E' || c == 'e' || c == '-' || c == '+'; }

// With a point, so that readers which tell 1 from 1.0 see what was written.
std::string plain(std::string_view token) {
  double value = 0;
  const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), value);
  if (error != std::errc{} || end != token.data() + token.size()) return std::string(token);
  const double size = std::abs(value);
  if (size != 0 && (size < kPlainLeast || size >= kPlainBelow)) return std::string(token);
  char text[64];
  const auto written = std::to_chars(text, text + sizeof(text), value, std::chars_format::fixed);
  std::string out(text, written.ptr);
  if (out.find('.') == std::string::npos) out += ".0";
  return out;
}

}  // namespace

std::string plain_numbers(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  for (std::size_t at = 0; at < json.size();) {
    std::size_t end = at + 1;
    if (json[at] == '"') {
      while (end < json.size() && json[end] != '"') end += json[end] == '\\' ? 2 : 1;
      end = end < json.size() ? end + 1 : json.size();
      out += json.substr(at, end - at);
    } else if (json[at] == '-' || (json[at] >= '0' && json[at] <= '9')) {
      while (end < json.size() && is_in_number(json[end])) ++end;
      const std::string_view token = json.substr(at, end - at);
      out += token.find_first_of("eE") == std::string_view::npos ? std::string(token) : plain(token);
    } else {
      out += json[at];
    }
    at = end;
  }
  return out;
}

}  // namespace fluvial

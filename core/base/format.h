// format_text("{} of {}", a, b): the few kinds of text that error messages are made of, with the standard library
// alone (the arithmetic builds where there is nothing but a compiler). "{}" takes the next argument; nothing else to
// it.
#pragma once

#include <charconv>
#include <concepts>
#include <string>
#include <string_view>

namespace fluvial {

inline std::string text_of(std::string_view text) { return std::string(text); }
template <std::same_as<bool> Bool>  // not what merely converts to it
std::string text_of(Bool value) {
  return value ? "true" : "false";
}
inline std::string text_of(char value) { return std::string(1, value); }

// Integers in decimal; floating point in the shortest form that reads back as the same value.
template <typename Number>
  requires((std::integral<Number> && !std::same_as<Number, bool> && !std::same_as<Number, char>) ||
           std::floating_point<Number>)
std::string text_of(Number value) {
  char buffer[64];
  return {buffer, std::to_chars(buffer, buffer + sizeof(buffer), value).ptr};
}

// As many "{}" as arguments: a surplus argument is left out, a surplus "{}" stays.
template <typename... Arguments>
std::string format_text(std::string_view pattern, const Arguments&... arguments) {
  std::string out;
  const auto put = [&](const std::string& argument) {
    const std::size_t at = pattern.find("{}");
    if (at == std::string_view::npos) return;
    out.append(pattern.substr(0, at)).append(argument);
    pattern.remove_prefix(at + 2);
  };
  (put(text_of(arguments)), ...);
  return out.append(pattern);
}

}  // namespace fluvial

#include "core/config/toml_bounds.h"

#include <algorithm>
#include <string>

namespace fluvial::config {
namespace {

// Behind the string that begins at `at`: three quotes or one, basic ("), in which a backslash escapes, or literal (').
// A string of one line that is not closed ends with its line.
std::size_t behind_string(std::string_view text, std::size_t at) {
  const char quote = text[at];
  const std::string_view three = text.substr(at, 3);
  const bool is_long = three.size() == 3 && three[1] == quote && three[2] == quote;
  const std::string_view closing = is_long ? three : text.substr(at, 1);
  for (std::size_t i = at + closing.size(); i < text.size(); ++i) {
    if (text.substr(i).starts_with(closing)) return i + closing.size();
    if (text[i] == '\n' && !is_long) return i;
    if (text[i] == '\\' && quote == '"') ++i;
  }
  return text.size();
}

class Scan {
 public:
  // What is beyond its bound once this character is read; null: nothing.
  const char* take(char character) {
    switch (character) {
      case '.': return ++segments_ > kTomlSegmentsMax ? "a key has too many segments" : nullptr;
      case '\n':
        ++line_;
        segments_ = 1;
        return nullptr;
      case '[':
      case '{': segments_ = 1; return ++nesting_ > kTomlNestingMax ? "tables and lists are nested too deeply" : nullptr;
      case ']':
      case '}': nesting_ -= nesting_ > 0 ? 1 : 0; return nullptr;
      case ',': segments_ = 1; return nullptr;
      case '=': segments_ = 1; return ++keys_ > kTomlKeysMax ? "the text has too many keys" : nullptr;
      default: return nullptr;
    }
  }
  void skip(std::string_view string) { line_ += static_cast<std::size_t>(std::ranges::count(string, '\n')); }
  std::size_t line() const { return line_; }

 private:
  std::size_t segments_ = 1;
  std::size_t nesting_ = 0;
  std::size_t keys_ = 0;
  std::size_t line_ = 1;
};

}  // namespace

Status check_toml_bounds(std::string_view text, std::string_view path) {
  Scan scan;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == '"' || text[at] == '\'') {
      const std::size_t behind = behind_string(text, at);
      scan.skip(text.substr(at, behind - at));
      at = behind;
      continue;
    }
    if (text[at] == '#') at = std::min(text.find('\n', at), text.size());
    if (at == text.size()) break;
    if (const char* what = scan.take(text[at++])) {
      return Error{Code::kInvalidArgument, std::string(path) + ":" + std::to_string(scan.line()) + ": " + what +
                                               ": expected at most " + std::to_string(kTomlSegmentsMax) +
                                               " segments in a key, " + std::to_string(kTomlNestingMax) +
                                               " levels and " + std::to_string(kTomlKeysMax) + " keys"};
    }
  }
  return {};
}

}  // namespace fluvial::config

// What a person's screen can do, asked once. Everything else prints plain lines.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace fluvial::cli {

class Terminal {
 public:
  // Colours and lines that are drawn over only when `stream` is a terminal, TERM is not "dumb" and NO_COLOR is not set
  // (then no colours alone).
  static Terminal of(std::FILE* stream);
  static Terminal plain() { return {}; }

  bool is_interactive() const { return interactive_; }
  std::size_t columns() const;

  std::string bold(std::string_view text) const { return wrap("1", text); }
  std::string dim(std::string_view text) const { return wrap("2", text); }
  std::string red(std::string_view text) const { return wrap("31", text); }
  std::string green(std::string_view text) const { return wrap("32", text); }
  std::string yellow(std::string_view text) const { return wrap("33", text); }
  std::string cyan(std::string_view text) const { return wrap("36", text); }

 private:
  std::string wrap(std::string_view code, std::string_view text) const;
  int descriptor_ = -1;
  bool interactive_ = false;
  bool colours_ = false;
};

// "[=======>      ]", `width` columns in all.
std::string progress_bar(double part, std::size_t width);

}  // namespace fluvial::cli

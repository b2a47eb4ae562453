#include "cli/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace fluvial::cli {

Terminal Terminal::of(std::FILE* stream) {
  Terminal terminal;
  terminal.descriptor_ = ::fileno(stream);
  const char* kind = std::getenv("TERM");
  terminal.interactive_ = ::isatty(terminal.descriptor_) == 1 && kind != nullptr && std::strcmp(kind, "dumb") != 0;
  const char* no_colour = std::getenv("NO_COLOR");
  terminal.colours_ = terminal.interactive_ && (no_colour == nullptr || *no_colour == '\0');
  return terminal;
}

std::size_t Terminal::columns() const {
  winsize size{};
  if (descriptor_ >= 0 && ::ioctl(descriptor_, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 100;
}

std::string Terminal::wrap(std::string_view code, std::string_view text) const {
  return colours_ ? fmt::format("\033[{}m{}\033[0m", code, text) : std::string(text);
}

std::string progress_bar(double part, std::size_t width) {
  if (width < 4) return "";
  const std::size_t inner = width - 2;
  const auto filled = static_cast<std::size_t>(std::clamp(part, 0.0, 1.0) * static_cast<double>(inner));
  std::string bar(inner, ' ');
  std::fill_n(bar.begin(), filled, '=');
  if (filled < inner) bar[filled] = '>';
  return "[" + bar + "]";
}

}  // namespace fluvial::cli

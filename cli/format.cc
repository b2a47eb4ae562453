#include "cli/format.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <ctime>

namespace fluvial::cli {
namespace {

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

}  // namespace

std::string format_count(std::uint64_t count) {
  std::string digits = fmt::format("{}", count);
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

std::string format_bytes(double bytes) {
  static constexpr std::array<const char*, 6> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t unit = 0;
  while (bytes >= 1000 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

std::string format_seconds(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "-";
  if (seconds < 0.9995) return fmt::format("{:.3g} ms", seconds * 1e3);
  if (seconds < 59.995) return fmt::format("{:.2f} s", seconds);
  const auto whole = static_cast<std::uint64_t>(std::llround(seconds));
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

std::string format_percent(double part) { return std::isfinite(part) ? fmt::format("{:.1f} %", part * 100) : "-"; }

std::string format_metric(double value) { return std::isfinite(value) ? fmt::format("{:.4g}", value) : "-"; }

std::string format_time(const std::string& utc) {
  if (utc.size() < 20 || utc[10] != 'T' || utc.back() != 'Z') return utc.empty() ? "-" : utc;
  return utc.substr(0, 10) + " " + utc.substr(11, 8) + " UTC";
}

std::string format_since(const std::string& utc, const std::string& today) {
  if (utc.size() < 20 || utc[10] != 'T') return utc.empty() ? "-" : utc;
  return utc.substr(0, 10) == today.substr(0, 10) ? utc.substr(11, 5) + " UTC" : utc.substr(0, 10);
}

std::string utc_now() { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))); }

std::string shorten(const std::string& text, std::size_t columns_max) {
  if (display_width(text) <= columns_max || columns_max < 3) return text;
  std::size_t bytes = 0;
  for (std::size_t columns = 0; bytes < text.size(); ++bytes) {
    if (!continues_character(text[bytes]) && columns++ == columns_max - 2) break;
  }
  return text.substr(0, bytes) + "..";
}

std::size_t display_width(const std::string& text) {
  std::size_t columns = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\033') {
      i = text.find('m', i);
      if (i == std::string::npos) break;
    } else if (!continues_character(text[i])) {
      ++columns;
    }
  }
  return columns;
}

}  // namespace fluvial::cli

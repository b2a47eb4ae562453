#include "core/base/week_hours.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace fluvial {
namespace {

constexpr int kDayMinutes = 24 * 60;
constexpr std::array<std::string_view, 7> kDays = {"mon", "tue", "wed", "thu", "fri", "sat", "sun"};
constexpr std::uint8_t kAllDays = 0x7f;

Error bad() {
  return {Code::kInvalidArgument,
          "expected hours such as 22:00-06:00 or mon-fri 20:00-07:00, sat-sun 00:00-24:00 (local time)"};
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::optional<int> day_from(std::string_view name) {
  for (std::size_t day = 0; day < kDays.size(); ++day) {
    if (kDays[day] == name) return static_cast<int>(day);
  }
  return std::nullopt;
}

// "HH:MM", up to 24:00.
std::optional<int> minute_from(std::string_view text) {
  const auto digit = [&](std::size_t at) { return text[at] >= '0' && text[at] <= '9' ? text[at] - '0' : 100; };
  if (text.size() != 5 || text[2] != ':') return std::nullopt;
  const int hour = digit(0) * 10 + digit(1);
  const int minute = digit(3) * 10 + digit(4);
  if (hour > 24 || minute > 59 || (hour == 24 && minute > 0)) return std::nullopt;
  return hour * 60 + minute;
}

// "mon", "mon-fri", "sat-mon"
std::optional<std::uint8_t> days_from(std::string_view text) {
  const std::size_t dash = text.find('-');
  const std::optional<int> first = day_from(text.substr(0, dash));
  const std::optional<int> last = dash == std::string_view::npos ? first : day_from(text.substr(dash + 1));
  if (!first || !last) return std::nullopt;
  std::uint8_t days = 0;
  for (int day = *first;; day = (day + 1) % 7) {
    days = static_cast<std::uint8_t>(days | (1 << day));
    if (day == *last) return days;
  }
}

std::string two_digits(int value) { return (value < 10 ? "0" : "") + std::to_string(value); }

}  // namespace

std::string to_string(const WallReading& reading) {
  std::string day(kDays[static_cast<std::size_t>(reading.weekday)]);
  day.front() = static_cast<char>(day.front() - 'a' + 'A');
  return day + " " + two_digits(reading.minute / 60) + ":" + two_digits(reading.minute % 60);
}

Result<WeekHours::Window> WeekHours::parse_window(std::string_view text) {
  Window window{kAllDays, 0, 0};
  if (const std::size_t space = text.find(' '); space != std::string_view::npos) {
    const std::optional<std::uint8_t> days = days_from(text.substr(0, space));
    if (!days) return bad();
    window.days = *days;
    text = trim(text.substr(space));
  }
  const std::size_t dash = text.find('-');
  if (dash == std::string_view::npos) return bad();
  const std::optional<int> begin = minute_from(text.substr(0, dash));
  const std::optional<int> end = minute_from(text.substr(dash + 1));
  if (!begin || !end || *begin == *end || *begin == kDayMinutes) return bad();
  window.begin = *begin;
  window.end = *end;
  return window;
}

Result<WeekHours> WeekHours::parse(std::string_view text) {
  WeekHours hours;
  hours.text_ = trim(text);
  if (hours.text_.empty()) return hours;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    FLUVIAL_ASSIGN(const Window window, parse_window(trim(text.substr(begin, comma - begin))));
    hours.windows_.push_back(window);
    begin = comma + 1;
  }
  return hours;
}

bool WeekHours::has(const WallReading& reading) const {
  if (always()) return true;
  const auto is_day = [](const Window& window, int day) { return (window.days >> ((day + 7) % 7) & 1) != 0; };
  for (const Window& window : windows_) {
    if (window.begin < window.end) {
      if (is_day(window, reading.weekday) && reading.minute >= window.begin && reading.minute < window.end) return true;
      continue;
    }
    if (is_day(window, reading.weekday) && reading.minute >= window.begin) return true;
    if (is_day(window, reading.weekday - 1) && reading.minute < window.end) return true;
  }
  return false;
}

}  // namespace fluvial

// Hours of the week, as a person writes them: "22:00-06:00", "mon-fri 20:00-07:00, sat-sun 00:00-24:00". Pure: it knows
// what a clock on the wall shows, and no clock. An hour that a change of the clocks repeats is inside both times, and
// one that it leaves out is not missed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace fluvial {

// What a clock on a wall shows.
struct WallReading {
  int weekday = 0;  // 0: Monday, 6: Sunday
  int minute = 0;   // of the day, 0 to 1439
  bool operator==(const WallReading&) const = default;
};
std::string to_string(const WallReading& reading);  // "Mon 14:03"

class WeekHours {
 public:
  // Windows separated by commas, each with its days before it or on all days; empty: always. A window that ends before
  // it begins goes on into the next day, and its days are those on which it begins. kInvalidArgument: what was
  // expected.
  static Result<WeekHours> parse(std::string_view text);

  bool always() const { return windows_.empty(); }
  bool has(const WallReading& reading) const;
  const std::string& text() const { return text_; }  // as it was written

 private:
  struct Window {
    std::uint8_t days = 0;  // bit 0: Monday
    int begin = 0;          // minutes of the day
    int end = 0;
  };
  static Result<Window> parse_window(std::string_view text);
  std::vector<Window> windows_;
  std::string text_;
};

}  // namespace fluvial

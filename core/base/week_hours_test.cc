#include "core/base/week_hours.h"

#include <gtest/gtest.h>

namespace fluvial {
namespace {

constexpr int kMon = 0, kFri = 4, kSat = 5, kSun = 6;
constexpr WallReading at(int day, int hour, int minute = 0) { return {day, hour * 60 + minute}; }

WeekHours hours_of(std::string_view text) {
  const Result<WeekHours> parsed = WeekHours::parse(text);
  EXPECT_TRUE(parsed.ok()) << text;
  return parsed.ok() ? *parsed : WeekHours();
}

TEST(WeekHours, NoneAreAllOfThem) {
  EXPECT_TRUE(hours_of("").always());
  EXPECT_TRUE(hours_of("  ").has(at(kSun, 3)));
}

TEST(WeekHours, AWindowHasItsBeginningAndNotItsEnd) {
  const WeekHours day = hours_of("08:00-17:30");
  EXPECT_FALSE(day.has(at(kMon, 7, 59)));
  EXPECT_TRUE(day.has(at(kMon, 8)));
  EXPECT_TRUE(day.has(at(kSun, 17, 29)));
  EXPECT_FALSE(day.has(at(kSun, 17, 30)));
}

TEST(WeekHours, AWindowOverMidnightBelongsToTheDayOnWhichItBegins) {
  const WeekHours nights = hours_of("mon-fri 22:00-06:00");
  EXPECT_TRUE(nights.has(at(kFri, 23)));
  EXPECT_TRUE(nights.has(at(kSat, 5, 59))) << "Friday's night";
  EXPECT_FALSE(nights.has(at(kSat, 6)));
  EXPECT_FALSE(nights.has(at(kSat, 22)));
  EXPECT_FALSE(nights.has(at(kMon, 5))) << "Sunday's night";
  EXPECT_TRUE(nights.has(at(kMon, 22)));
}

TEST(WeekHours, SeveralWindowsAddUpAndDaysMayGoOverTheWeekend) {
  const WeekHours both = hours_of("mon-fri 20:00-07:00, sat-sun 00:00-24:00");
  EXPECT_TRUE(both.has(at(kSat, 12)));
  EXPECT_TRUE(both.has(at(kSun, 23, 59)));
  EXPECT_FALSE(both.has(at(kMon, 12)));
  const WeekHours weekend = hours_of("fri-mon 10:00-11:00");
  EXPECT_TRUE(weekend.has(at(kSun, 10)));
  EXPECT_FALSE(weekend.has(at(2, 10)));
}

TEST(WeekHours, WhatIsNoWindowIsRefused) {
  for (const char* bad : {",", "22:00", "22-06", "22:00-", "24:00-06:00", "25:00-26:00", "22:60-23:00", "24:30-01:00",
                          "08:00-08:00", "8:00-9:00", "day 08:00-09:00", "mon-fri", "mon- 08:00-09:00", "08:00-09:00,",
                          "mon fri 08:00-09:00", "0x:00-09:00"}) {
    EXPECT_FALSE(WeekHours::parse(bad).ok()) << bad;
  }
}

TEST(WeekHours, AReadingIsWrittenAsAClockShowsIt) { EXPECT_EQ(to_string(at(kMon, 14, 3)), "Mon 14:03"); }

}  // namespace
}  // namespace fluvial

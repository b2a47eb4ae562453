#include "edge/service/owner.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace fluvial::edge {
namespace {

class TimeZone {  // as POSIX writes them, so that no table of zones is needed
 public:
  explicit TimeZone(const char* zone) {
    if (const char* had = std::getenv("TZ")) had_ = had;
    ::setenv("TZ", zone, 1);
  }
  ~TimeZone() { had_ ? ::setenv("TZ", had_->c_str(), 1) : ::unsetenv("TZ"); }

 private:
  std::optional<std::string> had_;
};

constexpr WallTime utc(int year, unsigned month, unsigned day, int hour, int minute = 0) {
  using namespace std::chrono;
  return sys_days(std::chrono::year(year) / month / day) + hours(hour) + minutes(minute);
}

class SetClock final : public Clock {
 public:
  TimePoint now() const override { return {}; }
  WallTime wall_now() const override { return wall; }
  WallTime wall = utc(2026, 11, 23, 12);  // a Monday
};

class Notes final : public SiteReport {
 public:
  void forbidden(const Offer&, const Objection& objection) override {
    rules.emplace_back(owners_rule_name(objection.rule));
  }
  std::vector<std::string> rules;
};

Offer named(const std::string& name, std::uint32_t attempt = 1) {
  Offer offer;
  offer.run = RunId(1);
  offer.round = RoundId(1);
  offer.attempt = AttemptId(attempt);
  offer.plan.name = name;
  return offer;
}

TEST(WallReading, IsTheLocalOneOnBothSidesOfAChangeOfTheClocks) {
  const TimeZone berlin("CET-1CEST,M3.5.0,M10.5.0/3");
  EXPECT_EQ(to_string(wall_reading(utc(2026, 1, 5, 12))), "Mon 13:00");
  EXPECT_EQ(to_string(wall_reading(utc(2026, 7, 6, 12))), "Mon 14:00");
  EXPECT_EQ(to_string(wall_reading(utc(2026, 3, 29, 0, 59))), "Sun 01:59");
  EXPECT_EQ(to_string(wall_reading(utc(2026, 3, 29, 1))), "Sun 03:00") << "an hour is left out";
  EXPECT_EQ(to_string(wall_reading(utc(2026, 10, 25, 0, 30))), "Sun 02:30");
  EXPECT_EQ(to_string(wall_reading(utc(2026, 10, 25, 1, 30))), "Sun 02:30") << "an hour comes twice";
  EXPECT_EQ(to_string(wall_reading(utc(2026, 1, 4, 23, 30))), "Mon 00:30") << "and another day";
}

TEST(Owner, ObjectsByTheLocalHourAndWithEachAttemptAnew) {
  const TimeZone tokyo("JST-9");
  SetClock clock;
  Notes notes;
  Owner owner({.hours = "mon-fri 22:00-06:00"}, clock, notes);
  const std::optional<Error> noon = owner.objection(named("x"));
  ASSERT_TRUE(noon);
  EXPECT_NE(noon->message.find("there it is Mon 21:00"), std::string::npos) << noon->message;
  clock.wall = utc(2026, 11, 23, 13);
  EXPECT_FALSE(owner.objection(named("x", 2))) << "asked again an hour later";
  EXPECT_EQ(notes.rules, std::vector<std::string>{"hours"});
}

TEST(Owner, SaysOnceForEachAttemptWhatItForbids) {
  SetClock clock;
  Notes notes;
  Owner owner({.runs = "a*", .cohort_min = 2}, clock, notes);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(owner.objection(named("b"))) << "as after a reconnect";
  EXPECT_TRUE(owner.objection(named("a", 2)));
  EXPECT_EQ(notes.rules, (std::vector<std::string>{"runs", "cohort"}));
}

}  // namespace
}  // namespace fluvial::edge

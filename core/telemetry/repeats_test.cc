#include "core/telemetry/repeats.h"

#include <gtest/gtest.h>

namespace fluvial::telemetry {
namespace {

using std::chrono::seconds;

Record warning(std::string message, std::vector<Field> fields) {
  return {Level::kWarn, std::move(message), std::move(fields)};
}
TimePoint at(int second) { return TimePoint(seconds(second)); }

TEST(Repeats, OfOneCauseSomeLinesAreWrittenAndTheOthersCounted) {
  Repeats repeats({.burst = 2, .window = seconds(60)});
  int written = 0;
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(repeats.due(at(i)).empty());
    written += repeats.admit(warning("refused", {{"code", "not_tls"}, {"remote", i}}), at(i)) ? 1 : 0;
  }
  EXPECT_EQ(written, 2);
  const std::vector<Record> due = repeats.due(at(60));
  ASSERT_EQ(due.size(), 1u);
  EXPECT_EQ(due[0].message, "refused");
  EXPECT_EQ(due[0].level, Level::kWarn);
  EXPECT_EQ(due[0].fields, (std::vector<Field>{{"code", "not_tls"}, {"remote", 9}, {"more", 8U}}));
  EXPECT_TRUE(repeats.due(at(61)).empty());
  EXPECT_TRUE(repeats.admit(warning("refused", {{"code", "not_tls"}}), at(61))) << "a new window";
}

TEST(Repeats, AnotherCauseIsNotHeldBackByThem) {
  Repeats repeats({.burst = 1, .window = seconds(60)});
  EXPECT_TRUE(repeats.admit(warning("refused", {{"site", "a"}}), at(0)));
  EXPECT_FALSE(repeats.admit(warning("refused", {{"site", "a"}, {"round", 2}}), at(0)));
  EXPECT_TRUE(repeats.admit(warning("refused", {{"site", "b"}}), at(0)));
  EXPECT_TRUE(repeats.admit(warning("refused", {{"site", "a"}, {"run", RunId(2)}}), at(0)));
  EXPECT_TRUE(repeats.admit(warning("late", {{"site", "a"}}), at(0)));
}

TEST(Repeats, WhatIsNoWarningIsNeverHeldBack) {
  Repeats repeats({.burst = 1, .window = seconds(60)});
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(repeats.admit({Level::kInfo, "round committed", {}}, at(0)));
  EXPECT_TRUE(repeats.rest().empty());
}

Record joined(std::string member, int epoch) {
  return {Level::kInfo, "child joined", {{"member", std::move(member)}, {"lease_epoch", epoch}}};
}

TEST(Repeats, WhoComesAndGoesFillsNoLog) {
  Repeats repeats({.burst = 2, .window = seconds(60)});
  int written = 0;
  for (int i = 0; i < 100; ++i) written += repeats.admit(joined("a", i), at(0)) ? 1 : 0;
  EXPECT_EQ(written, 2);
  EXPECT_TRUE(repeats.admit(joined("b", 1), at(0))) << "another member";
  EXPECT_TRUE(repeats.admit({Level::kInfo, "child left", {{"member", "a"}}}, at(0))) << "another line";
  const std::vector<Record> due = repeats.due(at(60));
  ASSERT_EQ(due.size(), 1u);
  EXPECT_EQ(due[0].level, Level::kInfo);
  EXPECT_EQ(due[0].fields, (std::vector<Field>{{"member", "a"}, {"lease_epoch", 99}, {"more", 98U}}));
  EXPECT_TRUE(repeats.admit(joined("a", 100), at(60)));
}

TEST(Repeats, ManyWhoComeAtOnceAreWrittenAndHideNoWarning) {
  Repeats repeats({.burst = 1, .window = seconds(60), .causes_max = 10});
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(repeats.admit(joined(std::to_string(i), 1), at(0))) << i;
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(repeats.admit(warning("m", {{"worker", i}}), at(0))) << i;
  EXPECT_FALSE(repeats.admit(joined("9", 2), at(1)));
  EXPECT_EQ(repeats.due(at(61)).size(), 1u);
  EXPECT_TRUE(repeats.admit(joined("1000", 1), at(61)));
  EXPECT_FALSE(repeats.admit(joined("1000", 2), at(61))) << "there is room again";
}

TEST(Repeats, ASmallWindowEndsBeforeALargeOnesBeginning) {
  Repeats repeats({.burst = 1, .window = seconds(60)});
  for (const int begin : {0, 30}) {
    for (int i = 0; i < 3; ++i) repeats.admit(warning("m", {{"run", begin}}), at(begin));
  }
  EXPECT_EQ(repeats.due(at(60)).size(), 1u);
  EXPECT_TRUE(repeats.due(at(89)).empty());
  EXPECT_EQ(repeats.due(at(90)).size(), 1u);
}

TEST(Repeats, OneSubjectsManyCausesHideNobodyElses) {
  Repeats repeats({.burst = 1, .window = seconds(60), .causes_max = 100, .causes_of_one_max = 10});
  int written = 0;
  for (int i = 0; i < 1000; ++i)
    written += repeats.admit(warning("refused", {{"site", "a"}, {"run", i}}), at(0)) ? 1 : 0;
  EXPECT_EQ(written, 11);
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(repeats.admit(warning("m", {{"part", i}}), at(0))) << i;
  EXPECT_TRUE(repeats.admit(warning("two machines show the identity", {{"site", "b"}}), at(1)));
  EXPECT_EQ(repeats.due(at(61)).size(), 1u);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(repeats.admit(warning("refused", {{"site", "a"}, {"run", i}}), at(61))) << i;
}

TEST(Repeats, CausesBeyondTheBoundShareOne) {
  Repeats repeats({.burst = 1, .window = seconds(60), .causes_max = 10});
  int written = 0;
  for (int i = 0; i < 1000; ++i) written += repeats.admit(warning("m", {{"worker", i}}), at(0)) ? 1 : 0;
  EXPECT_EQ(written, 11);
  const std::vector<Record> rest = repeats.rest();
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_EQ(rest[0].fields.back(), (Field{"more", 989U}));
}

}  // namespace
}  // namespace fluvial::telemetry

#include "cli/round_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fluvial::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

json::value committed(std::uint64_t round) {
  auto value = parse_json(R"({"event":"committed","run":1,"attempt":1,"participants":4,"late":1,"bytes_up":12600,
    "bytes_down":40000,"seconds":0.21,"metrics":{"loss":0.5},"contributors":[{"site":3,"name":"site-1","weight":320}],
    "refused":[{"site":4,"name":"site-2","code":"data_loss","message":"value 7 is NaN"}],"evaluation":{}})",
                          "test")
                   .value();
  value.as_object()["round"] = round;
  return value;
}
json::value evaluated(std::uint64_t round) {
  return json::object{{"event", "evaluated"},
                      {"run", 1},
                      {"round", round},
                      {"evaluation", {{"test_accuracy", 0.973}, {"test_loss", 0.1}}}};
}

class RoundViewTest : public ::testing::Test {
 protected:
  std::string printed() const {
    std::string text;
    std::rewind(file_);
    for (int c = std::fgetc(file_); c != EOF; c = std::fgetc(file_)) text += static_cast<char>(c);
    return text;
  }
  ~RoundViewTest() override { std::fclose(file_); }
  std::FILE* file_ = std::tmpfile();
  Io io_{.out = file_, .err = file_};
};

TEST_F(RoundViewTest, ALineHoldsWhatAPersonWants) {
  RoundView view(io_, 20, RoundView::Evaluation::kAwaited);
  view.on_event(committed(3));
  EXPECT_EQ(printed(), "") << "it waits for its evaluation";
  view.on_event(evaluated(3));
  EXPECT_EQ(printed(),
            "round  3/20  1/4 sites  loss    0.5  test accuracy 97.3 %  test loss    0.1  up  12.3 KiB  down  39.1 KiB"
            "   210 ms  1 late  refused site-2: value 7 is NaN\n");
  EXPECT_EQ(view.committed(), 3U);
  EXPECT_EQ(view.late_updates(), 1U);
}

TEST_F(RoundViewTest, OfAWindowTheLineHasItsGoalAndWhatWasOld) {
  json::value window = committed(3);
  window.as_object()["stale"] = 2;
  RoundView rounds(io_, 20, RoundView::Evaluation::kSeparate);
  rounds.of_plan(json::object{{"mode", "rounds"}, {"async.goal", 3}});
  rounds.on_event(window);
  EXPECT_THAT(printed(), AllOf(HasSubstr("round  3/20  1/4 sites"), HasSubstr("  2 old  1 late"))) << "late = next";
  RoundView windows(io_, 20, RoundView::Evaluation::kSeparate);
  windows.of_plan(json::object{{"mode", "async"}, {"async.goal", 3}});
  windows.on_event(window);
  EXPECT_THAT(printed(), HasSubstr("window  3/20  1 of goal 3  loss"));
  RoundView unnamed(io_, 20, RoundView::Evaluation::kSeparate);
  unnamed.of_plan(json::object{{"mode", "async"}, {"async.goal", 0}});
  unnamed.on_event(committed(4));
  EXPECT_THAT(printed(), HasSubstr("window  4/20  1 of goal 2")) << "half of them, where the plan names none";
  EXPECT_THAT(format_round(committed(5), 20, Terminal::plain()), Not(HasSubstr("old")));
}

TEST_F(RoundViewTest, AnEvaluationThatNeverComesHoldsNothingUpForLong) {
  RoundView view(io_, 20, RoundView::Evaluation::kAwaited);
  view.on_event(committed(1));
  view.on_event(committed(2));
  EXPECT_THAT(printed(), HasSubstr("round  1/20"));
  EXPECT_THAT(printed(), Not(HasSubstr("round  2/20")));
  view.finish();
  EXPECT_THAT(printed(), HasSubstr("round  2/20"));
}

TEST_F(RoundViewTest, WatchedRoundsComeAtOnce) {
  RoundView view(io_, 20, RoundView::Evaluation::kSeparate);
  view.on_event(committed(1));
  EXPECT_THAT(printed(), HasSubstr("round  1/20"));
  view.on_event(evaluated(1));
  EXPECT_THAT(printed(), HasSubstr("round 1  test accuracy 97.3 %"));
  EXPECT_EQ(number_member(member(view.last_round(), "evaluation"), "test_loss", 0), 0.1);
}

TEST_F(RoundViewTest, APauseSaysWhy) {
  RoundView view(io_, 20, RoundView::Evaluation::kSeparate);
  view.on_event(
      json::object{{"event", "state"}, {"run", 1}, {"status", "paused"}, {"reason", "no quorum in 3 attempts"}});
  EXPECT_THAT(printed(), HasSubstr("run 1 paused: no quorum in 3 attempts"));
  EXPECT_EQ(view.status(), "paused");
}

TEST_F(RoundViewTest, EventsOfAnotherShapeAreNoHarm) {
  RoundView view(io_, 0, RoundView::Evaluation::kAwaited);
  for (const char* text :
       {"1", "[]", "{}", R"({"event":"committed"})", R"({"event":"evaluated","round":"x"})", R"({"event":7})"}) {
    view.on_event(parse_json(text, "test").value());
  }
  view.finish();
}

TEST(Json, PrettyIsIndentedAndReadsBack) {
  const auto value = parse_json(R"({"a":[1,2],"b":{"c":"d"},"e":[]})", "test").value();
  EXPECT_EQ(parse_json(pretty(value), "test").value(), value);
  EXPECT_EQ(pretty(value), "{\n  \"a\": [1,2],\n  \"b\": {\"c\":\"d\"},\n  \"e\": []\n}\n");
}

json::value waiting(const std::string& reason, const std::string& severity, std::uint64_t in = 1) {
  return json::object{
      {"event", "waits"},
      {"run", 1},
      {"committed", 16},
      {"open", {{"round", 17}, {"attempt", 1}, {"participants", 2}, {"quorum", 2}, {"in", in}}},
      {"waits", json::array{json::object{{"node", "hospital-a"}, {"reason", reason}, {"severity", severity}}}}};
}

TEST_F(RoundViewTest, IntoAPipeItBeginsWithWhatIsWaitedForAndThenSaysWhatNeedsSomebody) {
  RoundView view(io_, 20, RoundView::Evaluation::kSeparate, RoundView::Waits::kTold);
  view.on_event(waiting("training since 03:12 UTC", "info"));
  EXPECT_EQ(printed(), "round 17 open: 1 of 2 in, quorum 2; waiting for hospital-a: training since 03:12 UTC\n");
  view.on_event(waiting("sending 1.0 of 8.0 MiB", "info"));
  const std::string before = printed();
  EXPECT_THAT(before, Not(HasSubstr("sending"))) << "that passes by itself";
  view.on_event(waiting("silent for 31 s", "warning"));
  view.on_event(waiting("silent for 32 s", "warning"));
  EXPECT_EQ(printed(), before + "waiting for hospital-a: silent for 31 s\n") << "once, not each second";
  view.on_event(waiting("training since 03:14 UTC", "info"));
  view.on_event(waiting("silent for 31 s", "warning"));
  EXPECT_EQ(printed(), before + "waiting for hospital-a: silent for 31 s\nwaiting for hospital-a: silent for 31 s\n")
      << "it was gone meanwhile";
}

TEST_F(RoundViewTest, WhatANodeNeedsIsToldOnceHoweverManyRoundsGoBy) {
  RoundView view(io_, 20, RoundView::Evaluation::kSeparate, RoundView::Waits::kTold);
  view.on_event(waiting("training since 03:12 UTC", "info"));
  const auto told = [&] {
    const std::string text = printed();
    std::size_t count = 0;
    for (std::size_t at = 0; (at = text.find("no worker attached", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  json::value between = waiting("", "info");
  between.as_object()["open"] = nullptr;
  between.as_object()["waits"] = json::array{json::object{
      {"node", "coordinator"}, {"what", "its disk"}, {"reason", "writing round 17"}, {"severity", "info"}}};
  json::value fetches = waiting("fetching the model since 03:12 UTC", "info");
  fetches.as_object()["waits"].as_array()[0].as_object()["doing"] = "fetching";
  for (std::uint64_t round = 1; round <= 5; ++round) {
    view.on_event(fetches);
    view.on_event(waiting("no worker attached", "warning"));
    view.on_event(between);
    view.on_event(committed(round));
  }
  EXPECT_EQ(told(), 1U);
  view.on_event(waiting("not connected since 03:12 UTC", "warning"));
  EXPECT_THAT(printed(), HasSubstr("waiting for hospital-a: not connected since 03:12 UTC\n")) << "it has changed";
  json::value counted = committed(6);
  counted.as_object()["contributors"].as_array()[0].as_object()["name"] = "hospital-a";
  view.on_event(waiting("no worker attached", "warning"));
  view.on_event(counted);
  view.on_event(waiting("no worker attached", "warning"));
  EXPECT_EQ(told(), 3U) << "it had one meanwhile";
}

TEST_F(RoundViewTest, AnOpenWindowIsToldWithItsGoal) {
  RoundView view(io_, 20, RoundView::Evaluation::kSeparate, RoundView::Waits::kTold);
  json::value window = waiting("no worker attached", "warning");
  window.at("open").as_object()["mode"] = "async";
  window.at("open").as_object()["goal"] = 1;
  view.on_event(window);
  EXPECT_EQ(printed(), "window 17 open: 1 of 1 in; waiting for hospital-a: no worker attached\n");
}

TEST_F(RoundViewTest, WaitsAreToldOnlyWhereTheyAreWanted) {
  RoundView view(io_, 20, RoundView::Evaluation::kSeparate);
  view.on_event(waiting("no worker attached", "warning"));
  EXPECT_EQ(printed(), "");
}

TEST_F(RoundViewTest, WhyARunIsPausedIsToldOnce) {
  RoundView view(io_, 20, RoundView::Evaluation::kSeparate, RoundView::Waits::kTold);
  view.on_event(json::object{{"event", "state"}, {"run", 1}, {"status", "paused"}, {"reason", "no quorum"}});
  const std::string before = printed();
  view.on_event(waiting("no quorum", "warning"));
  EXPECT_EQ(printed(), before);
}

}  // namespace
}  // namespace fluvial::cli

#include "cli/waits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "cli/format.h"

namespace fluvial::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

json::array waits() {
  return parse_json(R"([
    {"node": "hospital-a", "what": "its update of round 17", "reason": "no worker attached", "severity": "warning",
     "do": "start the training script there"},
    {"node": "hospital-b", "what": "its update of round 17", "reason": "training since 03:12 UTC", "severity": "info",
     "do": ""},
    {"node": "", "what": "sites", "reason": "1 connected, round 17 needs 2", "severity": "warning", "do": "x"}])",
                    "test")
      ->as_array();
}

json::value status() {
  json::value value = parse_json(R"({
    "federation": "hospitals", "version": "0.2.0", "sites_connected": 3, "sites_enrolled": 4,
    "aggregators_connected": 1, "aggregators_enrolled": 1,
    "runs": [{"id": 3, "name": "digits", "status": "running", "round": 16, "rounds": 100,
              "open": {"round": 17, "attempt": 2, "participants": 4, "in": 2, "quorum": 3, "open_s": 12.3}}],
    "problems": [{"severity": "error", "what": "run 3: round 17 cannot have its quorum: 2 in, 0 may come, 3 needed",
                  "node": "", "since": null, "do": "bring back those it waits for; the run pauses when its attempts are used up",
                  "runbook": "docs/operations/runbook.md#fluvialquorumatrisk"}]})",
                                 "test")
                          .value();
  value.as_object()["waits"] = waits();
  return value;
}

TEST(Waits, AreNamedWithTheirReasonsAndTheRestIsCounted) {
  EXPECT_EQ(waits_words(waits(), 3),
            "hospital-a: no worker attached; hospital-b: training since 03:12 UTC; sites: 1 connected, round 17 needs "
            "2");
  EXPECT_EQ(waits_words(waits(), 1), "hospital-a: no worker attached; and 2 more");
  EXPECT_EQ(waits_words({}, 3), "");
  EXPECT_EQ(unusual(waits()).size(), 2U);
}

TEST(Waits, AnOpenRoundIsOneLine) {
  EXPECT_EQ(open_words(member(status().at("runs").as_array()[0], "open")),
            "round 17 open for 12 s (attempt 2): 2 of 4 in, quorum 3");
  EXPECT_EQ(open_words(json::value()), "");
}

TEST(Waits, AnOpenWindowIsOneLineWithItsGoal) {
  json::value open = member(status().at("runs").as_array()[0], "open");
  open.as_object()["mode"] = "rounds";
  EXPECT_EQ(open_words(open), "round 17 open for 12 s (attempt 2): 2 of 4 in, quorum 3");
  open.as_object()["mode"] = "async";
  open.as_object()["goal"] = 3;
  EXPECT_EQ(open_words(open), "window 17 open for 12 s (attempt 2): 2 of 3 in");
}

TEST(Waits, OfARoundWithSeveralPassesTheLineSaysWhichIsOpen) {
  json::value open = member(status().at("runs").as_array()[0], "open");
  open.as_object()["pass"] = json::object{{"index", 1}, {"count", 2}};
  EXPECT_EQ(open_words(open), "round 17 open for 12 s (attempt 2, pass 2 of 2): 2 of 4 in, quorum 3");
  open.as_object()["attempt"] = 1;
  EXPECT_EQ(open_words(open), "round 17 open for 12 s (pass 2 of 2): 2 of 4 in, quorum 3");
  EXPECT_EQ(pass_words(json::object{{"pass", json::object{{"index", 0}, {"count", 2}}}}), "pass 1 of 2");
}

TEST(Waits, WhatANodeDoesHasItsBytesAndTheTimeLeft) {
  EXPECT_EQ(doing_words(json::object{{"doing", "training"}, {"progress", nullptr}}), "training");
  EXPECT_EQ(doing_words(json::object{{"doing", nullptr}}), "-");
  json::object sending{{"doing", "sending"},
                       {"progress", {{"done_bytes", 41943040}, {"total_bytes", 419430400}, {"eta_s", 12.2}}}};
  EXPECT_EQ(doing_words(sending), "sending 40.0 MiB/400.0 MiB, 12 s left");
  sending["progress"].as_object()["eta_s"] = nullptr;
  EXPECT_EQ(doing_words(sending), "sending 40.0 MiB/400.0 MiB");
}

json::value tiers() {
  return parse_json(R"({"tiers": [
    {"child": "site", "parent": "aggregator", "doing": "sending", "nodes": 3, "done_bytes": 41943040,
     "total_bytes": 419430400, "eta_s": 12.2},
    {"child": "aggregator", "parent": "coordinator", "doing": "fetching", "nodes": 1, "done_bytes": 0,
     "total_bytes": 1048576, "eta_s": null}]})",
                    "test")
      .value();
}

TEST(Waits, TransfersAreALineATier) {
  EXPECT_EQ(tier_lines(tiers(), 2),
            "  sites -> aggregators: 3 sending, 40.0 MiB/400.0 MiB, 12 s left\n"
            "  coordinator -> aggregators: 1 fetching, 0 B/1.0 MiB\n");
  EXPECT_EQ(tier_lines(json::object{}, 2), "") << "a coordinator of an earlier version";
  json::value now = status();
  now.at("runs").as_array()[0].at("open").as_object()["tiers"] = tiers().at("tiers");
  EXPECT_THAT(status_screen(now, Terminal::plain()), HasSubstr("quorum 3\n    sites -> aggregators: 3 sending, "));
}

TEST(StatusScreen, SaysThatARunPausesOnceItsRoundCloses) {
  json::value now = status();
  now.at("runs").as_array()[0].as_object()["pausing"] = "by an administrator";
  EXPECT_THAT(status_screen(now, Terminal::plain()),
              HasSubstr("running, pauses once the open round closes (by an administrator)  16 of 100"));
}

TEST(StatusScreen, SaysWhatRunsWhatIsWaitedForWhatIsWrongAndWhatToDo) {
  const std::string screen = status_screen(status(), Terminal::plain());
  EXPECT_THAT(screen, HasSubstr("hospitals  fluvial 0.2.0  3 of 4 sites connected, 1 of 1 aggregators connected\n"));
  EXPECT_THAT(screen, HasSubstr("run 3 digits  running  16 of 100 rounds committed\n  round 17 open for 12 s"));
  EXPECT_THAT(screen, HasSubstr("hospital-a  no worker attached\n              -> start the training script there\n"));
  EXPECT_THAT(screen, HasSubstr("hospital-b  training since 03:12 UTC\n"));
  EXPECT_THAT(screen, AllOf(HasSubstr("error    run 3: round 17 cannot"), HasSubstr("-> bring back those it waits for"),
                            HasSubstr("docs/operations/runbook.md#fluvialquorumatrisk")));
  EXPECT_THAT(screen, Not(HasSubstr("nothing is wrong")));
}

TEST(StatusScreen, CallsTheRoundsOfARunWithoutABarrierWindows) {
  json::value now = status();
  now.at("runs").as_array()[0].as_object()["mode"] = "async";
  EXPECT_THAT(status_screen(now, Terminal::plain()), HasSubstr("run 3 digits  running  16 of 100 windows committed\n"));
}

TEST(StatusScreen, SaysWhatWorkersReportedOfTheLastRound) {
  json::value now = status();
  now.at("runs").as_array()[0].as_object()["last"] = json::object{{"metrics", {{"perplexity", 31.5}}}};
  EXPECT_THAT(status_screen(now, Terminal::plain()),
              HasSubstr("16 of 100 rounds committed\n  round 16: perplexity   31.5\n"));
  now.at("runs").at(0).at("last").as_object()["not_finite"] = json::object{{"perplexity", {"site-2"}}};
  EXPECT_THAT(status_screen(now, Terminal::plain()),
              HasSubstr("perplexity   31.5\n  not finite, and in no mean: perplexity of site-2\n"));
}

TEST(StatusScreen, SaysSoWhenNothingIsWrongAndNothingRuns) {
  json::value well = status();
  for (const char* list : {"runs", "waits", "problems"}) well.as_object()[list] = json::array();
  EXPECT_THAT(status_screen(well, Terminal::plain()),
              AllOf(HasSubstr("no run is active: fluvial run start"), HasSubstr("nothing is wrong")));
}

TEST(StatusScreen, FitsOnAScreenHoweverManyThereAre) {
  json::value many = status();
  const json::value wait = waits()[0];
  const json::value problem = many.at("problems").as_array()[0];
  for (int i = 0; i < 100; ++i) {
    many.as_object()["waits"].as_array().push_back(wait);
    many.as_object()["problems"].as_array().push_back(problem);
  }
  const std::string screen = status_screen(many, Terminal::plain());
  std::istringstream lines(screen);
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    EXPECT_LE(display_width(line), 100U) << line;
    EXPECT_TRUE(line.empty() || line.back() != ' ') << "'" << line << "'";
  }
  EXPECT_LT(count, 60U);
  EXPECT_THAT(screen, AllOf(HasSubstr("  and 95 more\n"), HasSubstr("  and 93 more: fluvial status --json\n")));
}

TEST(Wrapped, BreaksBetweenWordsAndIndentsWhatFollows) {
  EXPECT_EQ(wrapped("one two three", 7, 2), "one two\n  three");
  EXPECT_EQ(wrapped("extraordinarily long", 5, 1), "extraordinarily\n long") << "a word is never cut";
  EXPECT_EQ(wrapped("", 5, 1), "");
}

}  // namespace
}  // namespace fluvial::cli

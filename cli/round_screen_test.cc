#include "cli/round_screen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fluvial::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

json::value answer() {
  return parse_json(R"({"pruned": 0, "shares": [], "rounds": [
    {"run": 1, "round": 20, "attempt": 1, "participants": 6, "late": 0, "stale": 0, "weight": 30, "metrics": {},
     "evaluation": {}, "refused": [], "seconds": 1.5, "bytes_up": 1024, "bytes_down": 1024, "model_sha256": "ab",
     "contributors": [
      {"site": 2, "name": "site-1", "weight": 10, "share": 1, "staleness": 0, "own_round": 20, "parent": "eu"},
      {"site": 3, "name": "site-2", "weight": 10, "share": 1, "staleness": 0, "own_round": 20, "metrics": {}},
      {"site": 4, "name": "site-3", "weight": 10, "share": 1, "staleness": 0, "own_round": 20, "metrics": {}}]}]})",
                    "test")
      .value();
}

TEST(RoundScreen, ListsHowManyWereOldWhereTheRunCountsSuch) {
  json::value rounds = answer();
  EXPECT_THAT(rounds_table(rounds, Terminal::plain()), AllOf(HasSubstr("SITES  LATE"), Not(HasSubstr("OLD"))));
  rounds.at("rounds").as_array()[0].as_object()["stale"] = 2;
  EXPECT_THAT(rounds_table(rounds, Terminal::plain()),
              AllOf(HasSubstr("SITES  OLD  LATE"), HasSubstr("3/6    2     0")));
  rounds.at("rounds").as_array()[0].as_object()["stale"] = 0;
  rounds.as_object()["shares"] = json::array{json::object{{"name", "site-1"}, {"rounds", 1}}};
  EXPECT_THAT(rounds_table(rounds, Terminal::plain()), HasSubstr("3/6    0     0"));
  EXPECT_EQ(rounds_table(json::object{}, Terminal::plain()), "no committed rounds\n");
}

TEST(RoundScreen, SharesAreThereWithNobodyOldAndWithWhoNeverCounts) {
  EXPECT_EQ(shares_table(answer(), false, Terminal::plain()), "") << "a run that counts nothing old has none";
  json::value rounds = answer();
  rounds.as_object()["shares"] =
      json::array{json::object{{"name", "site-1"}, {"rounds", 3}, {"stale", 0}, {"staleness", 0}},
                  json::object{{"name", "site-2"}, {"rounds", 1}, {"stale", 0}, {"staleness", 0}},
                  json::object{{"name", "site-3"}, {"rounds", 0}, {"stale", 0}, {"staleness", 0}}};
  const std::string table = shares_table(rounds, false, Terminal::plain());
  EXPECT_EQ(table,
            "\nSITE    ROUNDS   SHARE  OLD  STALENESS\n"
            "site-1       3  75.0 %    0          -\n"
            "site-2       1  25.0 %    0          -\n"
            "site-3       0   0.0 %    0          -\n");
  EXPECT_EQ(shares_table(rounds, true, Terminal::plain()), "\nof the whole run:" + table);
}

TEST(RoundScreen, AnOldUpdateIsNamedByItsOwnRound) {
  json::value round = answer().at("rounds").as_array()[0];
  EXPECT_THAT(round_screen(round), Not(HasSubstr("its update of"))) << "nobody's is old";
  json::array& contributors = round.at("contributors").as_array();
  contributors[0].as_object()["own_round"] = 18;
  contributors[0].as_object()["staleness"] = 1;
  contributors[1].as_object()["own_round"] = 19;  // it was fresh when it was admitted
  const std::string screen = round_screen(round);
  EXPECT_THAT(screen, HasSubstr("old           site-1: its update of round 18, staleness 1, admitted by eu\n"));
  EXPECT_THAT(screen, HasSubstr("old           site-2: its update of round 19, staleness 0\n"));
  EXPECT_THAT(screen, Not(HasSubstr("site-3: its")));
}

TEST(RoundScreen, NamesWhoseMetricsAreInNoMean) {
  json::value round = answer().at("rounds").as_array()[0];
  EXPECT_THAT(round_screen(round), Not(HasSubstr("not finite")));
  round.as_object()["not_finite"] = json::object{{"loss", {"site-2", "site-3"}}};
  EXPECT_THAT(round_screen(round), HasSubstr("not finite    loss of site-2, site-3: in no mean\n"));
}

json::value open() {
  return parse_json(R"({"run": 1, "round": 17, "attempt": 1, "quorum": 2, "mode": "rounds",
    "opened_at": "2026-01-31T12:00:00.123Z", "soft_left_s": 1.2, "hard_left_s": 31.2, "tiers": [], "sites": [
      {"site": 2, "name": "site-1", "state": "in", "reason": "", "doing": "training"},
      {"site": 3, "name": "site-2", "state": "awaited", "reason": "training since 03:12 UTC", "doing": "training"},
      {"site": 4, "name": "site-3", "state": "away", "reason": "not connected", "doing": null}]})",
                    "test")
      .value();
}

TEST(RoundScreen, AnOpenWindowHasAGoalAndAwaitsNobody) {
  EXPECT_THAT(open_round_screen(open(), Terminal::plain()),
              AllOf(HasSubstr("round 17 of run 1, attempt 1, open since "),
                    HasSubstr(": 1 of 3 in, quorum 2\na quorum is"), HasSubstr("site-2  awaited")));
  json::value window = open();
  window.as_object()["mode"] = "async";
  window.as_object()["goal"] = 2;
  EXPECT_THAT(open_round_screen(window, Terminal::plain()),
              AllOf(HasSubstr("window 17 of run 1"), HasSubstr(": 1 of 2 in\na quorum of 2 is enough in "),
                    HasSubstr("site-2  not in"), HasSubstr("site-3  away"), Not(HasSubstr("awaited"))));
}

}  // namespace
}  // namespace fluvial::cli

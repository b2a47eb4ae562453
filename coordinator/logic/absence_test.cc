#include "coordinator/logic/absence.h"

#include <gmock/gmock.h>

#include <chrono>

namespace fluvial::coordinator {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr WallTime kNight = std::chrono::sys_days(std::chrono::year(2026) / 1 / 31) + 3h + 12min + 40s;

SiteKnown connected() {
  SiteKnown site;
  site.stay = {true, true, kNight - 1h};
  return site;
}
SiteKnown reports(Doing doing, std::uint64_t workers = 1) {
  SiteKnown site = connected();
  site.activity = Activity{};
  site.activity->doing = doing;
  site.activity->workers = workers;
  site.activity->since = kNight - 10min;
  return site;
}

TEST(Absence, ASiteWithoutAWorkerIsSaidToHaveNone) {
  for (const Doing doing : {Doing::kIdle, Doing::kWaiting, Doing::kTraining}) {
    const Absence absence = why(reports(doing, 0), kNight);
    EXPECT_EQ(absence.reason, "no worker attached");
    EXPECT_EQ(absence.state, AbsenceState::kAwaited);
    EXPECT_FALSE(absence.is_usual());
  }
  EXPECT_EQ(why(reports(Doing::kFetching, 0), kNight).reason, "fetching the model since 03:02 UTC")
      << "first the model, then a worker";
}

TEST(Absence, WhoIsNotWaitedForIsAskedAndHasWordsOfItsOwn) {
  SiteKnown site = reports(Doing::kTraining, 0);
  site.place = Place::kMissing;
  site.expected = round::Expected::kNoWorker;
  EXPECT_EQ(absence_state_name(why(site, kNight).state), "asked");
  EXPECT_EQ(why(site, kNight).reason, "no worker attached; rounds ask it and do not wait for it");
  EXPECT_EQ(why(site, kNight).advice, "start the training script there");
  site.expected = round::Expected::kSilent;
  EXPECT_THAT(why(site, kNight).reason, HasSubstr("nothing has come from it for 3 rounds or more; rounds ask it and"));
  EXPECT_FALSE(why(site, kNight).is_usual());
  site.place = Place::kAwaited;
  EXPECT_EQ(why(site, kNight).state, AbsenceState::kAwaited) << "it was heard of since";
  site.place = Place::kMissing;
  site.stay.here = false;
  EXPECT_EQ(why(site, kNight).state, AbsenceState::kAway) << "that is why";
}

TEST(Absence, WhoMissedAPassIsNotAwaited) {
  for (const bool is_here : {true, false}) {
    SiteKnown site = reports(Doing::kTraining);
    site.stay.here = is_here;
    site.place = Place::kMissedPass;
    site.missed_pass = 1;
    const Absence absence = why(site, kNight);
    EXPECT_EQ(absence_state_name(absence.state), "missed") << "whatever it does now";
    EXPECT_EQ(absence.reason, "missed pass 2 of the attempt") << "people count from one";
    EXPECT_TRUE(absence.is_usual());
  }
}

TEST(Absence, WhatASiteDoesIsSaidWithItsBytesAndIsUsual) {
  SiteKnown site = reports(Doing::kFetching);
  site.activity->done_bytes = 40 << 20;
  site.activity->total_bytes = 400 << 20;
  site.activity->left_s = 12.2;
  EXPECT_EQ(why(site, kNight).reason, "fetching the model: 40 of 400 MiB, 12 s left");
  EXPECT_TRUE(why(site, kNight).is_usual());
  site.activity->doing = Doing::kSending;
  site.activity->left_s = 61;
  EXPECT_EQ(why(site, kNight).reason, "sending 40 of 400 MiB, 2 min left");
  site.activity->heard_ago = 45s;
  EXPECT_THAT(why(site, kNight).reason, HasSubstr("silent for 45 s; it was sending 40 of 400 MiB"));
  EXPECT_FALSE(why(site, kNight).is_usual());
  EXPECT_EQ(why(reports(Doing::kTraining), kNight).reason, "training since 03:02 UTC");
  EXPECT_EQ(why(reports(Doing::kEncoding), kNight).reason, "encoding its update since 03:02 UTC");
  site = reports(Doing::kTraining);
  site.activity->note = "1 of 2 workers attached";
  EXPECT_EQ(why(site, kNight).reason, "training since 03:02 UTC, 1 of 2 workers attached");
}

TEST(Absence, TrainingBeyondTheSoftDeadlineHasAdvice) {
  SiteKnown site = reports(Doing::kTraining);
  EXPECT_TRUE(why(site, kNight).is_usual());
  site.overdue = true;
  EXPECT_THAT(why(site, kNight).advice, HasSubstr("deadlines.soft_ms"));
}

TEST(Absence, OneThatIsAwayIsAwaySinceThenAndSoIsItsAggregator) {
  SiteKnown site;
  site.stay = {false, true, kNight - 30min};
  Absence absence = why(site, kNight);
  EXPECT_EQ(absence.reason, "not connected since 02:42 UTC");
  EXPECT_EQ(absence.state, AbsenceState::kAway);
  EXPECT_EQ(absence.since, kNight - 30min);
  EXPECT_THAT(absence.advice, HasSubstr("agent"));
  site.parent = "eu-agg";
  site.parent_stay = Stay{false, true, kNight - 30min};
  absence = why(site, kNight);
  EXPECT_EQ(absence.reason, "not connected since 02:42 UTC; nor is its aggregator eu-agg");
  EXPECT_THAT(absence.advice, HasSubstr("start eu-agg"));
  site.stay.came = false;
  site.parent_stay->here = true;
  EXPECT_EQ(why(site, kNight).reason, "not connected since the coordinator started (02:42 UTC)");
  site.activity = Activity{};
  EXPECT_THAT(why(site, kNight).reason, HasSubstr("not connected")) << "what it reported before is over";
}

TEST(Absence, WithoutReportsTheSessionSaysWhatItCan) {
  SiteKnown site = connected();
  EXPECT_EQ(why(site, kNight).reason, "connected, and nothing of this round has come from it");
  EXPECT_TRUE(why(site, kNight).is_usual());
  site.parent = "eu-agg";
  site.overdue = true;
  EXPECT_THAT(why(site, kNight).reason, HasSubstr("or through eu-agg"));
  EXPECT_FALSE(why(site, kNight).is_usual());
}

TEST(Absence, OneThatIsDoneIsWithItsAggregator) {
  SiteKnown site = reports(Doing::kWaiting);
  site.parent = "eu-agg";
  EXPECT_EQ(why(site, kNight).reason, "with its aggregator eu-agg");
  site.parent_activity = Activity{};
  site.parent_activity->doing = Doing::kSending;
  site.parent_activity->done_bytes = 1 << 20;
  site.parent_activity->total_bytes = 8 << 20;
  const Absence absence = why(site, kNight);
  EXPECT_EQ(absence.reason, "with eu-agg, which is sending 1.0 of 8.0 MiB");
  EXPECT_EQ(absence.activity->doing, Doing::kSending) << "the round waits for the aggregator's bytes";
  site.place = Place::kMissing;
  EXPECT_THAT(why(site, kNight).reason, HasSubstr("eu-agg closed without it; "));
}

TEST(Absence, WhoIsShutOutRefusedOrDeclinesIsNotWaitedForAndTheReasonSaysSo) {
  SiteKnown site = connected();
  site.place = Place::kRefused;
  site.refusal = Error{Code::kInvalidArgument, "NaN in tensor 'w'"};
  EXPECT_EQ(why(site, kNight).reason, "refused: NaN in tensor 'w'");
  EXPECT_EQ(why(site, kNight).state, AbsenceState::kRefused);
  site.declined = true;
  EXPECT_EQ(why(site, kNight).reason, "declined: NaN in tensor 'w'");
  EXPECT_EQ(why(site, kNight).state, AbsenceState::kDeclined);
  EXPECT_THAT(why(site, kNight).advice, HasSubstr("log of its agent"));
  site.refusal->message = "the site's owner allows only runs named other";
  EXPECT_THAT(why(site, kNight).advice, HasSubstr("policy.* of its edge.toml, which its owner alone can change"));
  site.ahead = "it knows of round 9 of run 1";
  EXPECT_EQ(why(site, kNight).reason, "refused: it knows of round 9 of run 1");
  site.quarantine = "two updates of one name";
  EXPECT_EQ(why(site, kNight).reason, "in quarantine: two updates of one name");
  site.revoked = true;
  EXPECT_EQ(why(site, kNight).reason, "revoked");
  EXPECT_EQ(why(site, kNight).state, AbsenceState::kRefused);
  site.place = Place::kIn;
  EXPECT_EQ(why(site, kNight).state, AbsenceState::kIn) << "what the sum holds counts";
  EXPECT_THAT(why(site, kNight).reason, IsEmpty());
}

TEST(ClockTime, HasTheDayWhenItIsNotLately) {
  EXPECT_EQ(clock_time(kNight, kNight + 19h), "03:12 UTC");
  EXPECT_EQ(clock_time(kNight, kNight + 21h), "2026-01-31 03:12 UTC");
}

TEST(Amount, IsInTheUnitOfTheWhole) {
  EXPECT_EQ(amount(0, 512), "0 of 512 B");
  EXPECT_EQ(amount(512, 4096), "0.5 of 4.0 KiB");
  EXPECT_EQ(amount(40 << 20, 400 << 20), "40 of 400 MiB");
  EXPECT_EQ(amount(500, 400), "400 of 400 B") << "never more than there is";
}

TEST(Listed, NamesAFewAndCountsTheOthers) {
  EXPECT_THAT(listed({}), IsEmpty());
  EXPECT_EQ(listed({{"hospital-a", "no worker attached"}, {"hospital-b", "not connected since 03:12 UTC"}}),
            "hospital-a: no worker attached; hospital-b: not connected since 03:12 UTC");
  std::vector<std::pair<std::string, std::string>> many(25, {"site", std::string(1000, 'x')});
  const std::string text = listed(many);
  EXPECT_THAT(text, HasSubstr("; and 17 more"));
  EXPECT_LT(text.size(), 2'000U);
  const std::string umlauts =
      listed({{"a", "\xc3\xa4" + std::string(159, 'x')}, {"b", std::string(157, 'x') + "\xc3\xa4xx"}});
  EXPECT_THAT(umlauts, Not(HasSubstr("\xc3.."))) << "cut between characters";
}

}  // namespace
}  // namespace fluvial::coordinator

#include "edge/logic/owner_policy.h"

#include <gmock/gmock.h>

#include "core/round/contribution.h"
#include "edge/logic/test_support.h"
#include "edge/logic/upload_rate.h"

namespace fluvial::edge {
namespace {

using testing::HasSubstr;

constexpr WallReading kMondayNoon{0, 12 * 60};
constexpr WallReading kMondayNight{0, 23 * 60};

Offer named(const std::string& name, std::optional<std::uint64_t> cohort = {}) {
  Offer made = offer(1);
  made.plan.name = name;
  made.cohort = cohort;
  return made;
}
OwnerPolicy policy(std::string_view runs, std::uint64_t cohort_min = 0, std::string_view hours = "") {
  return owner_policy(runs, cohort_min, hours).value();
}
std::string why(const OwnerPolicy& policy, const Offer& offer, const WallReading& now = kMondayNoon) {
  const std::optional<Objection> found = objection(policy, offer, now);
  if (!found) return "";
  EXPECT_FALSE(round::drops_update(found->error.code)) << "it says nothing about an update";
  return std::string(owners_rule_name(found->rule)) + ": " + found->error.message;
}

TEST(OwnerPolicy, WithoutRulesEveryRoundIsAllowed) {
  EXPECT_EQ(why(policy(""), named("anything")), "");
  EXPECT_EQ(why(OwnerPolicy{}, named("")), "");
}

TEST(OwnerPolicy, ARunThatNoGlobNamesIsDeclined) {
  const OwnerPolicy two = policy("retina-*, digits");
  EXPECT_EQ(why(two, named("retina-7")), "");
  EXPECT_EQ(why(two, named("digits")), "");
  EXPECT_EQ(why(two, named("digits2")), "runs: the site's owner allows only runs named retina-*, digits");
  EXPECT_NE(why(two, named("")), "");
  EXPECT_EQ(why(policy(" , "), named("x")), "") << "no glob at all";
}

TEST(OwnerPolicy, ACohortBelowTheLeastIsDeclinedAndSoIsOneThatNobodySigned) {
  const OwnerPolicy five = policy("", 5);
  EXPECT_EQ(why(five, named("x", 5)), "");
  EXPECT_EQ(why(five, named("x", 4)),
            "cohort: the site's owner allows only rounds of at least 5 sites: this one asks 4");
  EXPECT_THAT(why(five, named("x")), HasSubstr("nobody has signed how many take part"));
  EXPECT_EQ(why(policy("", 0), named("x")), "");
}

TEST(OwnerPolicy, OutsideItsHoursTheSiteSaysWhatTheyAreAndWhatItsClockShows) {
  const OwnerPolicy nights = policy("", 0, "22:00-06:00");
  EXPECT_EQ(why(nights, named("x"), kMondayNight), "");
  EXPECT_EQ(why(nights, named("x"), kMondayNoon),
            "hours: the site's owner allows training only at 22:00-06:00: there it is Mon 12:00");
}

TEST(OwnerPolicy, ARoundThatIsDeclinedIsNeitherFetchedNorTrained) {
  SiteMachine site({});
  const Error no{Code::kFailedPrecondition, "no"};
  const Effects effects = site.offered(offer(1), no);
  ASSERT_NE(find<DeclineRound>(effects), nullptr);
  EXPECT_EQ(find<DeclineRound>(effects)->attempt, AttemptId(1));
  EXPECT_EQ(find<FetchModel>(effects), nullptr);
  EXPECT_EQ(site.doing(), "waiting");
  EXPECT_NE(find<FetchModel>(site.offered(offer(1))), nullptr) << "the next attempt may find it willing";
}

TEST(OwnerPolicy, WhatHasBegunIsFinished) {
  const Error no{Code::kFailedPrecondition, "no"};
  SiteMachine site({});
  site.offered(offer(1));
  site.model_ready(model(0));
  EXPECT_EQ(find<DeclineRound>(site.offered(offer(1), no)), nullptr) << "training goes on, and counts";
  site.trained(kFirst);
  EXPECT_NE(find<Send>(site.encoded(kFirst, pending(1))), nullptr);
  EXPECT_NE(find<Send>(site.offered(offer(1), no)), nullptr) << "a pending update is sent again";
  EXPECT_EQ(find<DeclineRound>(site.offered(offer(1, /*counted=*/true), no)), nullptr);
}

TEST(OwnerPolicy, AnotherRoundIsDeclinedAtOnceWhileOneIsInHand) {
  const Error no{Code::kFailedPrecondition, "no"};
  SiteMachine waiting = sending();
  const Effects effects = waiting.offered(offer(2), no);
  ASSERT_NE(find<DeclineRound>(effects), nullptr);
  EXPECT_EQ(find<DeclineRound>(effects)->round, RoundId(2));
  EXPECT_NE(find<Ask>(effects), nullptr) << "the outcome of the one before is still asked for";
  waiting.answered(pending(1), Outcome::kCounted);
  EXPECT_EQ(find<FetchModel>(waiting.resolved(pending(1))), nullptr);

  SiteMachine training({});
  training.offered(offer(1));
  training.model_ready(model(0));
  EXPECT_NE(find<DeclineRound>(training.offered(offer(2), no)), nullptr);
  EXPECT_NE(find<Fold>(training.trained(kFirst)), nullptr) << "round 1 is over: its update goes into the residual";
  EXPECT_TRUE(training.folded(kFirst).empty());
}

TEST(OwnerPolicy, ACountedSiteDeclinesNothing) {
  SiteMachine site({});
  EXPECT_TRUE(site.offered(offer(1, /*counted=*/true), Error{Code::kFailedPrecondition, "no"}).empty());
}

TEST(UploadRate, WhatIsSentIsPaidForWithTime) {
  const TimePoint start{std::chrono::seconds(100)};
  UploadRate rate(1000);
  EXPECT_LE(rate.due(), start) << "the first piece goes at once";
  rate.sent(500, start);
  EXPECT_EQ(rate.due(), start + std::chrono::milliseconds(500));
  rate.sent(250, start + std::chrono::milliseconds(500));
  EXPECT_EQ(rate.due(), start + std::chrono::milliseconds(750));
  const TimePoint later = start + std::chrono::hours(1);
  rate.sent(1000, later);
  EXPECT_EQ(rate.due(), later + std::chrono::seconds(1)) << "an idle hour has saved up nothing";
}

TEST(UploadRate, WithoutALimitNothingWaits) {
  UploadRate rate(0);
  rate.sent(1'000'000'000, TimePoint(std::chrono::seconds(100)));
  EXPECT_EQ(rate.due(), TimePoint());
}

}  // namespace
}  // namespace fluvial::edge

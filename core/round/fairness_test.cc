#include "core/round/fairness.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <utility>

namespace fluvial::round {
namespace {

constexpr SiteId kFast{1};
constexpr SiteId kSlow{2};
constexpr SiteId kOther{3};
constexpr SiteId kNew{9};

ContributorSet of(std::initializer_list<std::pair<SiteId, std::uint64_t>> weights, std::uint32_t share = kLeastShare) {
  ContributorSet set;
  for (const auto& [site, weight] : weights) {
    Contribution one{.site = site, .weight = weight, .metrics = {}, .times = {}};
    one.share = share;
    EXPECT_TRUE(set.add(std::move(one)).ok());
  }
  return set;
}

void tell(Rates& rates, ModelVersion made, const ContributorSet& counted) {
  constexpr std::uint32_t kFactors[] = {512, 362, 296, 256};
  rates.committed(made, counted, kFactors);
}

// The fast site is in each window, the slow one in every `every`-th, from the first on.
Rates two_speeds(std::uint64_t windows, std::uint64_t every, std::uint64_t slow_weight = 10) {
  Rates rates;
  for (std::uint64_t i = 0; i < windows; ++i) {
    tell(rates, ModelVersion(i + 1), i % every == 0 ? of({{kFast, 10}, {kSlow, slow_weight}}) : of({{kFast, 10}}));
  }
  return rates;
}

TEST(Rates, NobodyIsFastBeforeAnythingWasCommitted) {
  const Rates rates;
  EXPECT_EQ(rates.share(kFast), kLeastShare);
  EXPECT_EQ(rates.share(kFast, ModelVersion(0)), kLeastShare);
  EXPECT_EQ(rates.divisor(of({{kFast, 10}, {kSlow, 30}})), (Divisor{kLeastShare * 40, kFactorBits})) << "the mean";
}

TEST(Rates, ASiteThatIsInHalfAsOftenCountsForTwice) {
  const Rates rates = two_speeds(40, 2);
  EXPECT_EQ(rates.share(kFast), kLeastShare);
  EXPECT_EQ(rates.share(kSlow), 2 * kLeastShare);
  EXPECT_EQ(rates.share(kNew), kLeastShare) << "nothing is known of it";
}

// What is old counts for less each time, and so for more by its rate.
TEST(Rates, AnOldUpdateIsNoWholeOne) {
  Rates rates;
  for (std::uint64_t made = 5; made <= 44; ++made) {
    ContributorSet both = of({{kFast, 10}});
    Contribution old{.site = kSlow, .weight = 10, .metrics = {}, .times = {}};
    old.base = ModelVersion(made - 4);
    old.admitted = ModelVersion(made - 1);
    EXPECT_TRUE(both.add(std::move(old)).ok());
    tell(rates, ModelVersion(made), both);
  }
  EXPECT_EQ(rates.share(kFast), kLeastShare);
  EXPECT_EQ(rates.share(kSlow), 2 * kLeastShare) << "each for 256 of 512";
}

TEST(Rates, NoneCountsForMoreThanSixteenOfAnother) { EXPECT_EQ(two_speeds(200, 50).share(kSlow), kWholeFactor); }

TEST(Rates, AShareIsRoundedHalfUp) {
  Rates rates = two_speeds(64, 64);  // the slow one in the first of 64 windows, and 63 more
  for (std::uint64_t made = 65; made <= 129; ++made) {
    tell(rates, ModelVersion(made), made % 2 == 0 ? of({{kFast, 10}, {kSlow, 10}}) : of({{kFast, 10}}));
  }
  // 33 of 129 windows: 32 * 129 / 33 = 125.09
  EXPECT_EQ(rates.share(kSlow), 125U);
  Rates half;  // 64 windows, 3 and 1 of them after the first: 32 * 64/64 / (n/64)
  for (std::uint64_t made = 1; made <= 65; ++made) {
    tell(half, ModelVersion(made), made % 16 == 1 && made < 64 ? of({{kFast, 1}, {kSlow, 1}}) : of({{kFast, 1}}));
  }
  EXPECT_EQ(half.share(kSlow), 512U) << "32 * 65 / 4 is 520: capped";
  Rates tie;  // 65 windows, 32 of them: 32 * 65 / 32 = 65; 64 of 129: 64.5
  for (std::uint64_t made = 1; made <= 129; ++made) {
    tell(tie, ModelVersion(made), made % 2 == 1 && made < 128 ? of({{kFast, 1}, {kSlow, 1}}) : of({{kFast, 1}}));
  }
  EXPECT_EQ(tie.share(kSlow), 65U) << "64.5";
}

TEST(Rates, OneThatCameLateIsMeasuredFromThere) {
  Rates rates = two_speeds(60, 1);
  for (std::uint64_t made = 61; made <= 70; ++made) tell(rates, ModelVersion(made), of({{kFast, 10}, {kNew, 10}}));
  EXPECT_EQ(rates.share(kNew), kLeastShare) << "in each window since it came";
  EXPECT_GT(rates.share(kSlow), kLeastShare) << "it comes no more";
}

// Whoever is in less often than once in all windows that count is the slowest, and no newcomer.
TEST(Rates, ASiteThatWasInLongAgoIsSlow) {
  Rates rates = two_speeds(10, 10);
  for (std::uint64_t made = 11; made <= 10 + kRateWindows; ++made) tell(rates, ModelVersion(made), of({{kFast, 10}}));
  EXPECT_EQ(rates.share(kSlow), kWholeFactor);
  EXPECT_EQ(rates.share(kNew), kLeastShare);
}

// Of many sites each is in seldom. One that was in for the first time just now is no faster than the others.
TEST(Rates, OnceIsNoRate) {
  Rates rates;
  for (std::uint64_t made = 1; made <= 40; ++made) {
    tell(rates, ModelVersion(made), of({{made % 2 == 1 ? kFast : kOther, 10}}));
  }
  tell(rates, ModelVersion(41), of({{kNew, 10}}));
  EXPECT_LE(rates.share(kFast), kLeastShare + 1);
  EXPECT_LE(rates.share(kOther), kLeastShare + 1);
  EXPECT_EQ(rates.share(kNew), kLeastShare);
}

TEST(Rates, WhereEverybodyWasInOnceNobodyIsFast) {
  Rates rates;
  for (std::uint32_t id = 1; id <= 50; ++id) tell(rates, ModelVersion(id), of({{SiteId(id), 10}}));
  for (std::uint32_t id = 1; id <= 50; ++id) EXPECT_EQ(rates.share(SiteId(id)), kLeastShare) << id;
}

// An update keeps the share that it was admitted with, while windows pass.
TEST(Rates, RememberTheSharesOfTheWindowsBefore) {
  const Rates rates = two_speeds(40, 2);
  EXPECT_EQ(rates.share(kSlow, ModelVersion(40)), 2 * kLeastShare);
  EXPECT_EQ(rates.share(kSlow, ModelVersion(25)), (2 * kLeastShare * 25 + 13) / 26) << "13 of 25";
  EXPECT_EQ(rates.share(kSlow, ModelVersion(23)), std::nullopt) << "too old";
  EXPECT_EQ(rates.share(kSlow, ModelVersion(41)), std::nullopt) << "it does not exist";
}

// What a coordinator knows that begins anew from the last kRateHistory commits.
TEST(Rates, ThoseOfAFewHundredWindowsAreThoseOfAll) {
  const auto window = [](std::uint64_t made) {
    return made % 5 == 0   ? of({{kFast, 10}, {kSlow, 30}})
           : made % 2 == 0 ? of({{kFast, 10}, {kOther, 7}})
                           : of({{kFast, 10}});
  };
  constexpr std::uint64_t kLast = 700;
  constexpr SiteId kGone{5};  // in the first window alone
  Rates all;
  Rates late({kGone, kFast});
  for (std::uint64_t made = 1; made <= kLast; ++made) {
    tell(all, ModelVersion(made), made == 1 ? of({{kGone, 10}}) : window(made));
    if (made > kLast - kRateHistory) tell(late, ModelVersion(made), window(made));
  }
  for (std::uint64_t back = 0; back <= 16; ++back) {
    for (const SiteId site : {kFast, kSlow, kOther, kGone, kNew}) {
      EXPECT_EQ(all.share(site, ModelVersion(kLast - back)), late.share(site, ModelVersion(kLast - back))) << back;
    }
  }
  EXPECT_EQ(all.divisor(window(10)), late.divisor(window(10)));
}

// Over many windows each site moves the model by its weight, however seldom it is in.
TEST(Rates, InTheLongRunEachSiteCountsByItsWeight) {
  const Rates rates = two_speeds(200, 4, /*slow_weight=*/30);
  const auto part = [&](SiteId site, std::uint64_t weight) {
    const ContributorSet one = of({{site, weight}, {kNew, 1}, {kOther, 1}, {SiteId(10), 1}, {SiteId(11), 1}});
    return static_cast<double>(rates.share(site) * weight) / static_cast<double>(rates.divisor(one).value);
  };
  EXPECT_NEAR(part(kSlow, 30) * 1 / (part(kFast, 10) * 4), 3, 0.01)
      << "once for four times, and three times the weight";
}

// A site that is alone in a window, and heavy or slow, moves the model by its update and not by more.
TEST(Rates, NoUpdateMovesTheModelByMoreThanItself) {
  const Rates rates = two_speeds(40, 4, /*slow_weight=*/1000);
  const ContributorSet slow = of({{kSlow, 1000}}, rates.share(kSlow));
  EXPECT_EQ(rates.divisor(slow).value, rates.share(kSlow) * 1000);
  const ContributorSet fast = of({{kFast, 10}}, rates.share(kFast));
  EXPECT_GT(rates.divisor(fast).value, 50 * rates.share(kFast) * 10) << "it is what an update weighs on average";
}

// Sites that were away come back together.
TEST(Rates, NoWindowMovesTheModelByMoreThanTwiceTheMeanOfItsUpdates) {
  Rates rates;
  tell(rates, ModelVersion(1), of({{SiteId(11), 10}, {SiteId(12), 10}, {SiteId(13), 10}, {SiteId(14), 10}}));
  for (std::uint64_t made = 2; made <= 100; ++made) tell(rates, ModelVersion(made), of({{kFast, 10}}));
  const ContributorSet back =
      of({{SiteId(11), 10}, {SiteId(12), 10}, {SiteId(13), 10}, {SiteId(14), 10}}, kWholeFactor);
  ASSERT_EQ(rates.share(SiteId(11)), kWholeFactor);
  EXPECT_EQ(rates.divisor(back).value, 4 * 10 * kWholeFactor / 2);
}

TEST(Rates, WithoutThemAWindowIsDividedByItsWeights) {
  EXPECT_EQ(by_weights(of({{kFast, 10}, {kSlow, 30}})), (Divisor{40, 0}));
}

// docs/design/windows.md
TEST(Shares, AnOldUpdateCountsForBothFactors) {
  const std::vector<std::uint32_t> factors{512, 362, 296};
  Contribution one{.site = kFast, .weight = 100, .metrics = {}, .times = {}};
  one.base = ModelVersion(4);
  one.admitted = ModelVersion(4);
  one.share = 160;
  EXPECT_EQ(share_of(one, factors)->weight, 100U * 160);
  EXPECT_EQ(share_of(one, factors)->down_bits, kFactorBits);
  one.admitted = ModelVersion(5);
  EXPECT_EQ(share_of(one, factors)->weight, 100U * 113) << "362 * 160 / 512 = 113.1";
  one.share = 1;
  EXPECT_EQ(share_of(one, factors)->weight, 100U) << "nothing that is in counts for nothing";
  one.share = kWholeFactor;
  one.admitted = ModelVersion(4);
  EXPECT_EQ(share_of(one, factors)->down_bits, 0) << "as without a rate";
}

}  // namespace
}  // namespace fluvial::round

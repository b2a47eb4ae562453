#include "core/round/lateness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/round/gather.h"

namespace fluvial::round {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

ModelRef model(std::uint64_t version) {
  return {RunId(1), ModelVersion(version), {std::byte{static_cast<unsigned char>(version)}}, 100};
}

Lateness of(std::uint32_t staleness_max, std::uint64_t base = 9) {
  Lateness lateness{staleness_max, staleness_factors(staleness_max, 0.5), {}};
  for (std::uint64_t i = 1; i <= staleness_max; ++i) lateness.earlier.push_back(model(base - i));
  return lateness;
}

Contribution late_entry(std::uint32_t site, std::uint64_t weight, std::uint64_t base, std::uint64_t admitted) {
  Contribution one{.site = SiteId(site), .lease = Epoch(1), .weight = weight, .metrics = {}, .times = {}};
  one.base = ModelVersion(base);
  one.admitted = ModelVersion(admitted);
  return one;
}

Status versions(const Contribution& one, std::uint64_t base, const Lateness* lateness) {
  ContributorSet set;
  EXPECT_TRUE(set.add(one).ok());
  return check_versions(set, ModelVersion(base), lateness);
}

// As docs/design/late.md lists them; made by hand with a table of square roots.
TEST(Lateness, FactorsAreThoseOfTheDocument) {
  EXPECT_THAT(staleness_factors(9, 0.5), ElementsAre(512, 362, 296, 256, 229, 209, 194, 181, 171, 162, 154));
  EXPECT_THAT(staleness_factors(3, 1), ElementsAre(512, 256, 171, 128, 102));
  EXPECT_THAT(staleness_factors(2, 0), Each(512U)) << "the plain sum, whatever the bases";
  EXPECT_THAT(staleness_factors(16, 4).back(), 1U) << "nothing that may enter counts for nothing";
}

TEST(Lateness, OnlyAPlanThatSaysSoHasAny) {
  Plan plan;
  EXPECT_EQ(lateness_of(plan, {model(1)}), std::nullopt);
  plan.late = "next";
  plan.staleness_max = 2;
  const auto lateness = lateness_of(plan, {model(8), model(7), model(6)});
  EXPECT_THAT(lateness->earlier, ElementsAre(model(8), model(7))) << "what is older is of no use";
  EXPECT_EQ(lateness->factors.size(), 4U);
  EXPECT_EQ(late_factor(lateness), 256.0F / 512.0F) << "of the first staleness that is too great";
  EXPECT_EQ(late_factor({}), 1.0F);
}

TEST(Lateness, ARoundTakesTheUpdatesOfTheRoundsJustBefore) {
  const Lateness lateness = of(2);
  EXPECT_FALSE(may_enter(lateness, RoundId(10), RoundId(10))) << "its own is no later one";
  EXPECT_TRUE(may_enter(lateness, RoundId(9), RoundId(10)));
  EXPECT_TRUE(may_enter(lateness, RoundId(8), RoundId(10)));
  EXPECT_FALSE(may_enter(lateness, RoundId(7), RoundId(10)));
  EXPECT_FALSE(may_enter(lateness, RoundId(11), RoundId(10)));
}

TEST(Lateness, ABaseIsKnownByItsVersion) {
  const Lateness lateness = of(2);
  EXPECT_EQ(*base_of(model(9), &lateness, ModelVersion(9)), model(9).digest);
  EXPECT_EQ(*base_of(model(9), &lateness, ModelVersion(7)), model(7).digest);
  EXPECT_EQ(base_of(model(9), &lateness, ModelVersion(6)), nullptr);
  EXPECT_EQ(base_of(model(9), &lateness, ModelVersion(10)), nullptr);
  EXPECT_EQ(base_of(model(9), nullptr, ModelVersion(8)), nullptr);
}

TEST(Lateness, TheVersionsOfAContributionAreLookedAt) {
  const Lateness lateness = of(2);
  EXPECT_TRUE(versions(late_entry(1, 5, 9, 9), 9, &lateness).ok());
  EXPECT_TRUE(versions(late_entry(1, 5, 7, 9), 9, &lateness).ok());
  EXPECT_EQ(versions(late_entry(1, 5, 6, 9), 9, &lateness).error().code, Code::kStale) << "too old";
  EXPECT_EQ(versions(late_entry(1, 5, 8, 8), 9, &lateness).error().code, Code::kStale) << "admitted in another round";
  EXPECT_EQ(versions(late_entry(1, 5, 7, 8), 9, &lateness).error().code, Code::kStale) << "it would count as fresher";
  EXPECT_EQ(versions(late_entry(1, kStaleWeightLimit, 8, 9), 9, &lateness).error().code, Code::kFailedPrecondition);
  EXPECT_TRUE(versions(late_entry(1, kStaleWeightLimit, 9, 9), 9, &lateness).ok()) << "fresh: any weight";
  EXPECT_TRUE(versions(late_entry(1, 5, 0, 0), 9, nullptr).ok());
  EXPECT_EQ(versions(late_entry(1, 5, 8, 9), 9, nullptr).error().code, Code::kInvalidArgument);
}

TEST(Lateness, WhatAParentSaysOfItMustFit) {
  EXPECT_TRUE(check_lateness(of(2), model(9), 30).ok());
  EXPECT_TRUE(check_lateness({2, staleness_factors(2, 0.5), {model(0)}}, model(1), 30).ok()) << "a young run";
  const auto refused = [](Lateness lateness, int scale_bits = 30) {
    return check_lateness(lateness, model(9), scale_bits).error().code == Code::kInvalidArgument;
  };
  EXPECT_TRUE(refused(of(2), kFactorBits - 1)) << "a probe would not be whole";
  EXPECT_TRUE(refused({0, {512, 362}, {}}));
  EXPECT_TRUE(refused({17, staleness_factors(17, 0.5), {}}));
  EXPECT_TRUE(refused({1, {512, 362}, {}}));
  EXPECT_TRUE(refused({1, {511, 362, 296}, {}}));
  EXPECT_TRUE(refused({1, {512, 600, 296}, {}})) << "none counts more than a fresh one";
  EXPECT_TRUE(refused({1, {512, 362, 0}, {}}));
  EXPECT_TRUE(refused({1, staleness_factors(1, 0.5), {model(8), model(7)}}));
  EXPECT_TRUE(refused({2, staleness_factors(2, 0.5), {model(7), model(6)}}));
}

TEST(Shares, AFreshUpdateIsAddedAsInASynchronousRound) {
  const std::vector<std::uint32_t> factors = staleness_factors(2, 0.5);
  const auto fresh = share_of(late_entry(1, 77, 9, 9), factors);
  EXPECT_EQ(fresh->weight, 77U);
  EXPECT_EQ(fresh->down_bits, 0);
  const auto old = share_of(late_entry(1, 77, 7, 9), factors);
  EXPECT_EQ(old->weight, 77U * 296);
  EXPECT_EQ(old->down_bits, 9);
  const auto undamped = share_of(late_entry(1, 77, 7, 9), staleness_factors(2, 0));
  EXPECT_EQ(undamped->weight, 77U);
  EXPECT_EQ(undamped->down_bits, 0);
  EXPECT_FALSE(share_of(late_entry(1, 77, 5, 9), factors)) << "beyond the table";
  EXPECT_FALSE(share_of(late_entry(1, 77, 8, 9), {})) << "no table";
  EXPECT_FALSE(share_of(late_entry(1, std::uint64_t{1} << 28, 8, 9), factors)) << "the product would not be exact";
}

TEST(Shares, TheProbeIsThatOfTheVersionsInTheEntry) {
  const std::vector<std::uint32_t> factors = staleness_factors(2, 0.5);
  const auto check = [&](Contribution one, std::int64_t probe) {
    one.probe = probe;
    ContributorSet set;
    EXPECT_TRUE(set.add(one).ok());
    return check_probe(set, 20, factors).ok();
  };
  EXPECT_TRUE(check(late_entry(1, 3, 9, 9), std::int64_t{3} << 20));
  EXPECT_TRUE(check(late_entry(1, 3, 8, 9), std::int64_t{3 * 362} << 11));
  EXPECT_FALSE(check(late_entry(1, 3, 8, 9), std::int64_t{3} << 20)) << "old, and summed as if it were fresh";
  EXPECT_FALSE(check(late_entry(1, 3, 9, 9), std::int64_t{3 * 362} << 11)) << "fresh, and summed as if it were old";
}

TEST(DecidedRounds, WhatIsOfThemDoesNotComeInAgain) {
  Gather gather({{SiteId(1), Epoch(1), 100}});
  gather.know({{SiteId(1), RoundId(8)}});
  const auto admitted = [&](std::uint64_t base, std::uint64_t version) {
    const Contribution one = late_entry(1, 5, base, version);
    ContributorSet set;
    EXPECT_TRUE(set.add(one).ok());
    EXPECT_EQ(gather.admit(set).ok(), gather.without(set).empty());
    return gather.admit(set);
  };
  EXPECT_TRUE(admitted(8, 9).ok()) << "of round 9";
  EXPECT_EQ(admitted(7, 9).error().code, Code::kAlreadyExists) << "of round 8";
  EXPECT_EQ(admitted(6, 9).error().code, Code::kAlreadyExists);
  EXPECT_TRUE(admitted(9, 9).ok()) << "of the open round";
  EXPECT_TRUE(admitted(0, 0).ok()) << "of a parent that says no versions, and so brings nothing else";
  EXPECT_TRUE(gather.check_mark(SiteId(2), RoundId(1)).ok()) << "nothing of it was decided";
}

TEST(DecidedRounds, ARefusalSaysOfWhichRoundItIs) {
  Gather gather({{SiteId(1), Epoch(1), 100}, {SiteId(2), Epoch(1), 100}, {SiteId(3), Epoch(1), 100}});
  const Refusal old{SiteId(1), {Code::kDataLoss, "damaged"}, RoundId(8)};
  gather.refuse(old);
  ContributorSet spoilt;
  ASSERT_TRUE(spoilt.add(late_entry(2, 5, 8, 9)).ok());
  ASSERT_TRUE(spoilt.add(late_entry(3, 5, 9, 9)).ok());
  gather.begin_take(spoilt);
  gather.abandon_take(spoilt, {Code::kDataLoss, "unreadable"});
  const std::vector<Refusal> refusals = gather.refusals();
  ASSERT_EQ(refusals.size(), 3U);
  EXPECT_EQ(refusals[0], old);
  EXPECT_EQ(refusals[1].own_round(RoundId(10)), RoundId(9));
  EXPECT_EQ(refusals[2].own_round(RoundId(10)), RoundId(10));
  EXPECT_EQ((Refusal{SiteId(1), {}, RoundId(11)}.own_round(RoundId(10))), RoundId(10)) << "no later one can be";
}

TEST(Decisions, ACommitDecidesNothingOfWhatMayStillEnter) {
  CommitRecord record;
  record.late = {SiteId(1)};
  record.refusals = {{SiteId(2), {Code::kFailedPrecondition, "declined"}}, {SiteId(3), {Code::kDataLoss, "damaged"}}};
  EXPECT_EQ(decided_by(record, false).late.size(), 1U) << "without the key it is late";
  EXPECT_EQ(decided_by(record, false).refusals.size(), 2U);
  record.late_is_next = true;
  EXPECT_TRUE(decided_by(record, false).late.empty());
  ASSERT_EQ(decided_by(record, false).refusals.size(), 1U);
  EXPECT_EQ(decided_by(record, false).refusals[0].site, SiteId(3));
  EXPECT_EQ(decided_by(record, true).late.size(), 1U) << "no round follows";
  EXPECT_EQ(decided_by(record, true).refusals.size(), 2U);
}

}  // namespace
}  // namespace fluvial::round

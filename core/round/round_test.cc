#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "core/base/name_key.h"
#include "core/round/contribution.h"
#include "core/round/gather.h"
#include "core/round/plan.h"
#include "core/round/run_status.h"
#include "core/round/sampling.h"
#include "core/round/schema.h"

namespace fluvial::round {
namespace {

Contribution contribution_of(std::uint32_t site, std::uint64_t weight = 5, std::uint64_t lease = 1) {
  return {SiteId(site), Epoch(lease), weight, Digest{}, 0, {}};
}
ContributorSet set_of(std::initializer_list<std::uint32_t> sites) {
  ContributorSet set;
  for (const std::uint32_t site : sites) EXPECT_TRUE(set.add(contribution_of(site)).ok());
  return set;
}
std::vector<Participant> participants(std::uint32_t count) {
  std::vector<Participant> all;
  for (std::uint32_t site = 1; site <= count; ++site) all.push_back({SiteId(site), Epoch(1), 100});
  return all;
}

TEST(RunStatus, IsReadFromItsNameAlone) {
  for (const RunStatus status : {RunStatus::kRunning, RunStatus::kPaused, RunStatus::kStopped, RunStatus::kDone}) {
    EXPECT_EQ(parse_run_status(run_status_name(status)), status);
  }
  for (const char* stranger : {"", "unknown", "Done", "done "}) EXPECT_FALSE(parse_run_status(stranger)) << stranger;
  EXPECT_TRUE(is_over(RunStatus::kDone) && is_over(RunStatus::kStopped));
  EXPECT_FALSE(is_over(RunStatus::kRunning) || is_over(RunStatus::kPaused));
}

TEST(ContributorSet, CountsEachSiteOnce) {
  ContributorSet set = set_of({1, 2});
  EXPECT_EQ(set.add(contribution_of(2)).error().code, Code::kAlreadyExists);
  EXPECT_EQ(set.merge(set_of({3, 1})).error().code, Code::kAlreadyExists);
  EXPECT_FALSE(set.contains(SiteId(3))) << "a refused merge leaves nothing behind";
  EXPECT_TRUE(set.merge(set_of({3, 4})).ok());
  EXPECT_EQ(set.total_weight(), 20u);
  EXPECT_EQ(set.overlap(set_of({4, 5, 1})), (std::vector{SiteId(1), SiteId(4)}));
}

TEST(ContributorSet, RefusesWeightsThatWouldNotBeExact) {
  ContributorSet set;
  EXPECT_FALSE(set.add(contribution_of(1, 0)).ok());
  EXPECT_FALSE(set.add(contribution_of(1, kWeightLimit)).ok());
  EXPECT_TRUE(set.add(contribution_of(1, kWeightLimit - 1)).ok());
}

TEST(ContributorSet, TheProbeTellsAContributionThatIsNotInTheSum) {
  ContributorSet set;
  Contribution once = contribution_of(1, 3);
  once.probe = 3 << 4;
  ASSERT_TRUE(set.add(once).ok());
  EXPECT_TRUE(check_probe(set, 4).ok());
  Contribution twice = contribution_of(2, 3);
  twice.probe = 2 * (3 << 4);
  ASSERT_TRUE(set.add(twice).ok());
  EXPECT_EQ(check_probe(set, 4).error().code, Code::kDataLoss);
}

TEST(ContributorSet, AProbeThatNoSumCanHoldIsNone) {
  ContributorSet set;
  Contribution heavy = contribution_of(1, kWeightLimit / 2);
  heavy.probe = static_cast<std::int64_t>(heavy.weight << 40);  // 2^68: nothing is left of it in 64 bits
  ASSERT_TRUE(set.add(heavy).ok());
  EXPECT_EQ(check_probe(set, 40).error().code, Code::kDataLoss);
  EXPECT_EQ(check_probe(set, 64).error().code, Code::kDataLoss);
  EXPECT_EQ(check_probe(set, -1).error().code, Code::kDataLoss);
}

TEST(Gather, SettlesWhenEachParticipantIsInOrWillNotBe) {
  Gather gather(participants(4));
  const ContributorSet first = set_of({1, 2});
  ASSERT_TRUE(gather.admit(first).ok());
  gather.begin_take(first);
  gather.refuse({SiteId(3), Error{Code::kDataLoss, "NaN"}});
  gather.mark_missing({SiteId(4), SiteId(1)});
  EXPECT_FALSE(gather.settled()) << "1 and 2 are being added";
  gather.finish_take(first);
  EXPECT_TRUE(gather.settled());
  EXPECT_EQ(gather.held(), first);
  ASSERT_EQ(gather.refusals().size(), 1u);
  EXPECT_TRUE(gather.admit(SiteId(4), Epoch(1), 5).ok()) << "a missing site may still come";
}

TEST(Gather, AdmitsEachSiteOnceUnderItsLeaseAndItsWeight) {
  Gather gather(participants(3));
  EXPECT_EQ(gather.admit(SiteId(9), Epoch(1), 5).error().code, Code::kFailedPrecondition);
  EXPECT_EQ(gather.admit(SiteId(1), Epoch(2), 5).error().code, Code::kStale);
  EXPECT_EQ(gather.admit(SiteId(1), Epoch(1), 0).error().code, Code::kInvalidArgument);
  EXPECT_EQ(gather.admit(SiteId(1), Epoch(1), 101).error().code, Code::kInvalidArgument);
  gather.begin_take(set_of({1}));
  EXPECT_EQ(gather.admit(SiteId(1), Epoch(1), 5).error().code, Code::kAlreadyExists);
  gather.refuse({SiteId(2), Error{Code::kDataLoss, "NaN"}});
  EXPECT_EQ(gather.admit(SiteId(2), Epoch(1), 5).error().code, Code::kFailedPrecondition);
}

TEST(Gather, FollowsWhatTheParentHolds) {
  Gather gather(participants(3));
  gather.begin_take(set_of({1, 2}));
  gather.finish_take(set_of({1, 2}));
  gather.move_held_above();
  EXPECT_TRUE(gather.held().empty());
  EXPECT_EQ(gather.counted(), (std::vector{SiteId(1), SiteId(2)}));
  gather.mark_above({SiteId(2)});  // the parent restarted and lost site 1
  EXPECT_EQ(gather.awaited(), (std::vector{SiteId(1), SiteId(3)}));
}

TEST(Sampling, IsUniformAndDeterministic) {
  std::map<SiteId, Lot> sites;
  for (std::uint32_t i = 1; i <= 10; ++i) sites[SiteId(i)] = 1;
  std::map<SiteId, int> chosen;
  for (std::uint64_t round = 1; round <= 4000; ++round) {
    const auto sample = sample_sites(sites, 0.25, 7, RoundId(round));
    EXPECT_EQ(sample.size(), 3u);
    EXPECT_EQ(sample, sample_sites(sites, 0.25, 7, RoundId(round)));
    EXPECT_TRUE(std::is_sorted(sample.begin(), sample.end()));
    for (const SiteId site : sample) ++chosen[site];
  }
  for (const auto& [site, weight] : sites) EXPECT_NEAR(chosen[site], 1200, 150);  // five standard deviations
  EXPECT_EQ(sample_sites(sites, 1, 7, RoundId(1)).size(), 10u);
  EXPECT_TRUE(sample_sites({}, 0.5, 7, RoundId(1)).empty());
}

// In another federation, where enrolment has given them other numbers.
TEST(Sampling, GoesByNames) {
  std::map<SiteId, Lot> here, there;
  for (std::uint32_t i = 1; i <= 10; ++i) {
    const Lot lot{1, name_key("hospital-" + std::to_string(i))};
    here[SiteId(i)] = lot;
    there[SiteId(40 - i)] = lot;
  }
  for (std::uint64_t round = 1; round <= 20; ++round) {
    std::set<std::uint32_t> elsewhere;
    for (const SiteId site : sample_sites(there, 0.3, 7, RoundId(round))) elsewhere.insert(40 - site.value());
    std::set<std::uint32_t> chosen;
    for (const SiteId site : sample_sites(here, 0.3, 7, RoundId(round))) chosen.insert(site.value());
    EXPECT_EQ(chosen, elsewhere) << round;
  }
}

TEST(Sampling, NobodyTrainsAloneUnasked) {
  EXPECT_EQ(participants_min_for(0, 1), 1U);
  EXPECT_EQ(participants_min_for(1, 1), 1U);
  EXPECT_EQ(participants_min_for(2, 1), 2U);
  EXPECT_EQ(participants_min_for(3, 1), 2U);
  EXPECT_EQ(participants_min_for(5, 1), 3U);
  EXPECT_EQ(participants_min_for(4, 4), 4U);
}

TEST(Sampling, DrawsByWeightWithoutReplacement) {
  const std::map<SiteId, Lot> sites{{SiteId(1), 1}, {SiteId(2), 1}, {SiteId(3), 1}, {SiteId(4), 0.25}};
  int light = 0;
  constexpr int kRounds = 10'000;
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    const auto sample = sample_sites(sites, 0.5, 11, RoundId(round));
    ASSERT_EQ(sample.size(), 2u);
    light += sample.back() == SiteId(4) ? 1 : 0;
  }
  // Drawn first with 0.25 / 3.25, or second, after one of the others, with 0.25 / 2.25.
  const double expected = 0.25 / 3.25 + (3 / 3.25) * (0.25 / 2.25);
  EXPECT_NEAR(light, expected * kRounds, 5 * std::sqrt(kRounds * expected * (1 - expected)));
}

TEST(Sampling, ASitesLuckIsItsOwn) {
  const std::map<SiteId, Lot> few{{SiteId(1), 1}, {SiteId(2), 1}, {SiteId(3), 1}};
  std::map<SiteId, Lot> more = few;
  more[SiteId(9)] = 1;
  for (std::uint64_t round = 1; round <= 100; ++round) {
    std::vector<SiteId> of_more = sample_sites(more, 0.5, 3, RoundId(round));
    if (std::erase(of_more, SiteId(9)) == 0) {
      EXPECT_EQ(of_more, sample_sites(few, 0.5, 3, RoundId(round))) << round;
    }
  }
}

TEST(Sampling, OfANumberThereAreSoManyAndFewerAreAmongMore) {
  const std::map<SiteId, Lot> sites{{SiteId(1), 1}, {SiteId(2), 1}, {SiteId(3), 2}, {SiteId(9), 1}};
  std::vector<SiteId> before;
  for (std::size_t count = 0; count <= 4; ++count) {
    const std::vector<SiteId> drawn = draw_sites(sites, count, 3, RoundId(5));
    EXPECT_EQ(drawn.size(), count);
    EXPECT_TRUE(std::equal(before.begin(), before.end(), drawn.begin())) << "in the order in which they are drawn";
    before = drawn;
  }
  EXPECT_EQ(draw_sites(sites, 5, 3, RoundId(5)), before);
}

// Who is drawn first has the room that is left, whatever numbers enrolment gave.
TEST(Sampling, TheOrderOfADrawGoesByNames) {
  std::map<SiteId, Lot> here, there;
  for (std::uint32_t i = 1; i <= 10; ++i) {
    const Lot lot{1, name_key("hospital-" + std::to_string(i))};
    here[SiteId(i)] = lot;
    there[SiteId(40 - i)] = lot;
  }
  for (std::uint64_t round = 1; round <= 20; ++round) {
    std::vector<SiteId> elsewhere = draw_sites(there, 6, 7, RoundId(round));
    for (SiteId& site : elsewhere) site = SiteId(40 - site.value());
    EXPECT_EQ(draw_sites(here, 6, 7, RoundId(round)), elsewhere) << round;
  }
}

TEST(Schema, RefusesWhatOverflowsRepeatsOrIsUnknown) {
  EXPECT_FALSE(Schema::make({}).ok());
  EXPECT_FALSE(Schema::make({{"a", DType::kF32, {2}}, {"a", DType::kF32, {2}}}).ok());
  const auto huge = Schema::make({{"w", DType::kF32, {1ULL << 33, 1ULL << 33}}});
  ASSERT_FALSE(huge.ok());
  EXPECT_NE(huge.error().message.find("'w'"), std::string::npos);
  EXPECT_FALSE(Schema::make({{"n", DType::kI64, {1}}}).ok()) << "nothing to average";
  EXPECT_FALSE(dtype_from_name("F16").ok());
}

TEST(Schema, CutsAModelAndPutsItBackTogether) {
  const Schema schema = *Schema::make({{"w", DType::kF32, {2}}, {"steps", DType::kI16, {2}}, {"b", DType::kF32, {1}}});
  const std::vector<float> values{1.5f, -2.0f, 3.0f};
  const std::vector<std::int64_t> integers{-7, 300};
  Buffer model(schema.model_bytes());
  ASSERT_TRUE(join_model(schema, values, integers, model.span()).ok());
  std::vector<float> back(3);
  std::vector<std::int64_t> back_integers(2);
  split_model(schema, model.span(), back, back_integers);
  EXPECT_EQ(back, values);
  EXPECT_EQ(back_integers, integers);
  const std::vector<std::int64_t> too_large{0, 1 << 20};
  const Status refused = join_model(schema, values, too_large, model.span());
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("'steps'"), std::string::npos);
}

TEST(Schema, NamesTheTensorThatDiffers) {
  const Schema a = *Schema::make({{"w", DType::kF32, {2}}, {"b", DType::kF32, {1}}});
  const Schema b = *Schema::make({{"w", DType::kF32, {2}}, {"b", DType::kF32, {3}}});
  EXPECT_TRUE(check_same_schema(a, a).ok());
  EXPECT_EQ(check_same_schema(a, b).error().message, "tensor 'b' is F32[3], expected F32[1]");
}

TEST(Plan, DefaultsAreValidAndErrorsNameTheKey) {
  Plan plan;
  plan.name = "digits";
  EXPECT_TRUE(check_plan(plan).ok());
  plan.hard_deadline = plan.soft_deadline - Milliseconds(1);
  EXPECT_NE(check_plan(plan).error().message.find("deadlines.hard_ms"), std::string::npos);
  plan = Plan{.name = "x", .participants_fraction = std::numeric_limits<double>::quiet_NaN()};
  EXPECT_NE(check_plan(plan).error().message.find("participants.fraction"), std::string::npos);
}

TEST(Refusal, DropsAnUpdateOnlyWhenItSpeaksOfTheUpdateItself) {
  for (const Code code : {Code::kInvalidArgument, Code::kDataLoss, Code::kPermissionDenied, Code::kConflict}) {
    EXPECT_TRUE(drops_update(code)) << static_cast<int>(code);
  }
  for (const Code code : {Code::kStale, Code::kUnavailable, Code::kResourceExhausted, Code::kInternal,
                          Code::kFailedPrecondition, Code::kAlreadyExists, Code::kUnauthenticated, Code::kNotFound}) {
    EXPECT_FALSE(drops_update(code)) << static_cast<int>(code);
  }
}

}  // namespace
}  // namespace fluvial::round

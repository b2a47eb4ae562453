// Late is next, at an aggregator (docs/design/late.md): an update that is here when its round is over enters the next.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "aggregator/logic/test_region.h"

namespace fluvial::aggregator {
namespace {

using namespace std::chrono_literals;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Opening late_round(std::uint64_t round, std::set<SiteId> counted = {}) {
  Opening made = opening(1, std::move(counted), round);
  made.same_session = true;
  made.subject.base = {RunId(1), ModelVersion(round - 1), {}, 40};
  made.subject.late = round::Lateness{2, round::staleness_factors(2, 0.5), {}, 0};
  return made;
}

round::ContributorSet update_of(std::uint32_t site, std::uint64_t base, std::uint64_t admitted) {
  round::ContributorSet set;
  round::Contribution one{SiteId(site), Epoch(1), 10, {std::byte(base + 1)}, 0, {}};
  one.base = ModelVersion(base);
  one.admitted = ModelVersion(admitted);
  EXPECT_TRUE(set.add(one).ok());
  return set;
}

class RegionLate : public testing::Test {
 protected:
  RegionLate() { machine_.opened(late_round(5), at(0s)); }
  Effects bring(std::uint64_t id, const round::ContributorSet& in) {
    return machine_.arrived(ArrivalId(id), round::Arrival{in, {}, {}}, at(1s));
  }
  // Site 1 is in the sum that goes up at the deadline; site 2 comes while that is on its way.
  void one_missed_it() {
    bring(1, update_of(1, 4, 4));
    machine_.taken(ArrivalId(1), update_of(1, 4, 4), at(1s));
    ASSERT_THAT(all<SendPartial>(machine_.tick(at(9s))), SizeIs(1));
    ASSERT_THAT(all<Take>(bring(2, update_of(2, 4, 4))), IsEmpty());
  }
  // The sum of the open round, when these are in.
  round::ContributorSet sum_with(const round::ContributorSet& taken, std::uint64_t id) {
    machine_.taken(ArrivalId(id), taken, at(1s));
    const auto sent = all<SendPartial>(machine_.tick(at(9s)));
    return sent.empty() ? round::ContributorSet() : sent.back().contributors;
  }
  RegionMachine machine_;
};

TEST_F(RegionLate, AnUpdateThatIsHereWhenItsRoundIsOverIsInTheNextSum) {
  one_missed_it();
  const Effects over = machine_.committed(update_of(1, 4, 4));
  ASSERT_THAT(all<Release>(over), SizeIs(1));
  EXPECT_EQ(all<Release>(over)[0].arrival, ArrivalId(1)) << "it counted";
  EXPECT_THAT(all<Drop>(over), IsEmpty()) << "nobody sends it again";
  EXPECT_THAT(all<SendPartial>(machine_.tick(at(20s))), IsEmpty()) << "nothing goes up between two rounds";
  const Effects next = machine_.opened(late_round(6), at(9s));
  ASSERT_THAT(all<Take>(next), SizeIs(1));
  EXPECT_EQ(all<Take>(next)[0].arrival, ArrivalId(2));
  EXPECT_EQ(all<Take>(next)[0].admitted_on, ModelVersion(5));
  EXPECT_TRUE(machine_.gather().is_counted(SiteId(2))) << "its opening says that it need not send";
  EXPECT_TRUE(sum_with(update_of(2, 4, 5), 2).contains(SiteId(2)));
}

TEST_F(RegionLate, AnUpdateThatIsWholeBetweenTwoRoundsIsInTheNextSum) {
  machine_.committed(update_of(1, 4, 4));
  EXPECT_TRUE(machine_.admit(SiteId(3), Epoch(1), 10).ok());
  EXPECT_THAT(bring(3, update_of(3, 4, 4)), IsEmpty()) << "it waits";
  EXPECT_THAT(all<Take>(machine_.opened(late_round(6), at(9s))), SizeIs(1));
}

TEST_F(RegionLate, SumsAreMadeAnewAndWhatIsTooOldOrCountedIsGivenBack) {
  round::Arrival sum{update_of(1, 4, 4), {}, {}};
  sum.scale_bits = 20;
  ASSERT_THAT(all<Take>(machine_.arrived(ArrivalId(1), sum, at(1s))), SizeIs(1));
  bring(2, update_of(2, 2, 4));
  bring(3, update_of(3, 4, 4));
  const Effects over = machine_.committed({});
  ASSERT_THAT(all<Drop>(over), SizeIs(1));
  EXPECT_EQ(all<Drop>(over)[0].arrival, ArrivalId(1)) << "the child makes another of what it holds";
  EXPECT_FALSE(machine_.admit(RoundId(5), AttemptId(1), Epoch(1), update_of(1, 4, 4)).ok());
  EXPECT_THAT(all<Drop>(machine_.arrived(ArrivalId(4), sum, at(1s))), SizeIs(1));
  const Effects next = machine_.opened(late_round(6, {SiteId(3)}), at(9s));
  EXPECT_THAT(all<Take>(next), IsEmpty());
  ASSERT_THAT(all<Drop>(next), SizeIs(2)) << "site 2 is three rounds old, the parent has site 3's";
  EXPECT_EQ(all<Drop>(next)[0].error.code, Code::kStale);
}

// The parent was away when the round was committed: what counted of this the root turns away by its site's mark.
TEST_F(RegionLate, WithoutTheCommitWhatIsHereIsOfferedAgain) {
  one_missed_it();
  EXPECT_THAT(all<Take>(machine_.opened(late_round(6), at(9s))), SizeIs(2));
  EXPECT_TRUE(machine_.takes(RunId(1), RoundId(4), true)) << "and what is on its way is taken";
  EXPECT_FALSE(machine_.takes(RunId(1), RoundId(3), true));
  EXPECT_FALSE(machine_.takes(RunId(1), RoundId(5), false));
}

TEST_F(RegionLate, AnotherPlanTakesNothingOver) {
  one_missed_it();
  machine_.committed(update_of(1, 4, 4));
  Opening other = late_round(6);
  other.subject.plan.codec = "int8";
  const Effects next = machine_.opened(other, at(9s));
  EXPECT_THAT(all<Take>(next), IsEmpty());
  EXPECT_THAT(all<Drop>(next), SizeIs(1));
}

}  // namespace
}  // namespace fluvial::aggregator

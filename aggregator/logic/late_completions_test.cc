// A completion names what it completes: the completion of an earlier arrival, partial or timer does nothing.
#include <gtest/gtest.h>

#include <chrono>

#include "aggregator/logic/region_machine.h"

namespace fluvial::aggregator {
namespace {

using namespace std::chrono_literals;
using round::Arrival;
using round::ContributorSet;

const Error kDisk{Code::kUnavailable, "the disk failed"};

TimePoint at(std::chrono::seconds s) { return TimePoint(s); }

ContributorSet set_of(std::initializer_list<std::uint32_t> ids) {
  ContributorSet set;
  for (const std::uint32_t id : ids) EXPECT_TRUE(set.add({SiteId(id), Epoch(1), 10, {}, 0, {}}).ok());
  return set;
}
Opening opening_of(std::uint64_t round) {
  Opening opening{RunId(1), RoundId(round), AttemptId(1), Epoch(1), {}, {}, {}, 20, at(9s * round), false};
  for (std::uint32_t id = 1; id <= 3; ++id) opening.participants.push_back({SiteId(id), Epoch(1), 100});
  return opening;
}
template <typename T>
const T* find(const Effects& effects) {
  for (const Effect& effect : effects) {
    if (const T* one = std::get_if<T>(&effect)) return one;
  }
  return nullptr;
}

TEST(RegionLateCompletions, OfAnArrivalOfTheRoundBeforeBringNobodyIntoThisOne) {
  RegionMachine machine;
  machine.opened(opening_of(1), at(0s));
  for (const std::uint32_t id : {1U, 2U}) machine.arrived(ArrivalId(id), Arrival{set_of({id}), {}, {}}, at(1s));
  machine.opened(opening_of(2), at(2s));
  EXPECT_TRUE(machine.taken(ArrivalId(1), set_of({1}), at(3s)).empty());
  EXPECT_TRUE(machine.take_failed(ArrivalId(2), kDisk, at(3s)).empty());
  EXPECT_TRUE(machine.gather().counted().empty());
  EXPECT_TRUE(machine.gather().refusals().empty());
  machine.closed();
  EXPECT_TRUE(machine.taken(ArrivalId(1), set_of({1}), at(4s)).empty());
  EXPECT_TRUE(machine.take_failed(ArrivalId(2), kDisk, at(4s)).empty());
}

TEST(RegionLateCompletions, OfAnArrivalThatIsInTheSumChangeNothing) {
  RegionMachine machine;
  machine.opened(opening_of(1), at(0s));
  machine.arrived(ArrivalId(1), Arrival{set_of({1}), {}, {}}, at(1s));
  machine.arrived(ArrivalId(2), Arrival{set_of({2}), {}, {}}, at(1s));
  machine.taken(ArrivalId(1), set_of({1}), at(1s));
  const auto counted = machine.gather().counted();
  EXPECT_TRUE(machine.take_failed(ArrivalId(1), kDisk, at(2s)).empty());
  EXPECT_TRUE(machine.taken(ArrivalId(1), set_of({3}), at(2s)).empty());
  EXPECT_EQ(machine.gather().counted(), counted);
  EXPECT_FALSE(machine.gather().quiet()) << "the other is still being added";
}

TEST(RegionLateCompletions, OfAPartialOfTheRoundBeforeAnswerNone) {
  RegionMachine machine;
  machine.opened(opening_of(1), at(0s));
  const Effects first = machine.tick(at(9s));
  ASSERT_NE(find<SendPartial>(first), nullptr);
  machine.opened(opening_of(2), at(10s));
  machine.arrived(ArrivalId(1), Arrival{set_of({1, 2, 3}), {}, {}}, at(11s));
  const Effects second = machine.taken(ArrivalId(1), set_of({1, 2, 3}), at(11s));
  ASSERT_NE(find<SendPartial>(second), nullptr);
  const std::uint64_t before = find<SendPartial>(first)->sequence;
  EXPECT_NE(find<SendPartial>(second)->sequence, before);
  EXPECT_TRUE(machine.receipt(before, {}, {}, at(12s)).empty());
  EXPECT_TRUE(machine.receipt(before, Error{Code::kUnavailable, "disk"}, {}, at(12s)).empty());
  EXPECT_NE(find<Release>(machine.receipt(find<SendPartial>(second)->sequence, {}, {}, at(13s))), nullptr);
}

// The time says what is due, not the timer: a timer of an earlier round that fires late finds nothing to do.
TEST(RegionLateCompletions, OfATimerFindNothingThatIsDue) {
  RegionMachine machine;
  machine.opened(opening_of(1), at(0s));
  machine.opened(opening_of(2), at(8s));
  EXPECT_TRUE(machine.tick(at(9s)).empty());
  EXPECT_EQ(machine.gather().awaited().size(), 3U);
  EXPECT_NE(find<SendPartial>(machine.tick(at(18s))), nullptr);
  machine.closed();
  EXPECT_TRUE(machine.tick(at(19s)).empty());
}

}  // namespace
}  // namespace fluvial::aggregator

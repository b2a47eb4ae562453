#include "core/base/clock_offset.h"

#include <gtest/gtest.h>

#include <limits>

namespace fluvial {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Two machines: the peer's steady clock is `apart` from ours. We ask at our time `at`; the ways there and back, and the
// peer, take what they take.
struct Machines {
  Duration apart = hours(-5);
  WallTime own_wall{milliseconds(1'800'000'000'000)};
  Duration walls_apart{};

  ClockSample ask(Duration at, Duration there, Duration back, Duration thinks = {}) const {
    const TimePoint asked(hours(2) + at);
    const TimePoint answered = asked + there + thinks + back;
    const auto wall = [this](Duration when, Duration wrong) {
      return own_wall + std::chrono::duration_cast<milliseconds>(when + wrong);
    };
    return {.asked = asked,
            .received = asked + there + apart,
            .sent = asked + there + thinks + apart,
            .answered = answered,
            .peer_wall = wall(at + there + thinks, walls_apart),
            .own_wall = wall(at + there + thinks + back, {})};
  }
};
TimePoint at(Duration when) { return TimePoint(hours(2) + when); }

TEST(ClockOffsets, NothingIsKnownBeforeTheFirstAnswer) { EXPECT_FALSE(ClockOffsets().at(TimePoint())); }

TEST(ClockOffsets, WaysOfOneLengthGiveTheOffset) {
  const Machines machines;
  ClockOffsets offsets;
  offsets.add(machines.ask({}, milliseconds(20), milliseconds(20)));
  const auto found = offsets.at(at(milliseconds(40)));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->steady, machines.apart);
  EXPECT_GE(found->uncertainty, milliseconds(20));
  EXPECT_LE(found->uncertainty, milliseconds(20) + microseconds(1));
}

TEST(ClockOffsets, WhateverTheWaysTheTruthIsWithinTheUncertainty) {
  const Machines machines;
  for (const int there : {0, 1, 7, 30, 99}) {
    for (const int back : {0, 1, 8, 55}) {
      ClockOffsets offsets;
      offsets.add(machines.ask({}, milliseconds(there), milliseconds(back), seconds(3)));
      const auto found = offsets.at(at(seconds(3) + milliseconds(there + back)));
      ASSERT_TRUE(found);
      EXPECT_LE(std::chrono::abs(found->steady - machines.apart), found->uncertainty) << there << " " << back;
      EXPECT_LE(found->uncertainty, milliseconds(there + back) + Duration(1))
          << "what the peer took itself is no part of it";
    }
  }
}

TEST(ClockOffsets, TheShortestRoundTripCountsUntilItIsTooOld) {
  const Machines machines;
  ClockOffsets offsets;
  offsets.add(machines.ask({}, milliseconds(1), milliseconds(1)));
  offsets.add(machines.ask(seconds(5), milliseconds(2), milliseconds(40)));
  const auto soon = offsets.at(at(seconds(6)));
  ASSERT_TRUE(soon);
  EXPECT_EQ(soon->steady, machines.apart) << "the first";
  const auto late = offsets.at(at(hours(2)));
  ASSERT_TRUE(late);
  EXPECT_EQ(late->uncertainty - soon->uncertainty, Duration(std::chrono::nanoseconds(719'400'000)))
      << "100 microseconds a second";
}

TEST(ClockOffsets, OldSamplesGo) {
  const Machines machines;
  ClockOffsets offsets(1e-9);
  offsets.add(machines.ask({}, milliseconds(1), milliseconds(1)));
  for (std::size_t i = 1; i <= ClockOffsets::kLength; ++i) {
    offsets.add(machines.ask(seconds(5 * i), milliseconds(10), milliseconds(10)));
  }
  EXPECT_GE(offsets.at(at(seconds(60)))->uncertainty, milliseconds(10));
}

// A machine that slept: its steady clock stood still.
TEST(ClockOffsets, WhatContradictsASampleReplacesIt) {
  Machines machines;
  ClockOffsets offsets;
  offsets.add(machines.ask({}, milliseconds(1), milliseconds(1)));
  machines.apart -= seconds(10);
  offsets.add(machines.ask(seconds(20), milliseconds(15), milliseconds(15)));
  const auto found = offsets.at(at(seconds(21)));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->steady, machines.apart);
}

TEST(ClockOffsets, TheWallClockIsTheLastSamples) {
  Machines machines;
  ClockOffsets offsets;
  offsets.add(machines.ask({}, milliseconds(1), milliseconds(1)));
  machines.walls_apart = seconds(90);
  offsets.add(machines.ask(seconds(5), milliseconds(20), milliseconds(20)));
  EXPECT_EQ(offsets.at(at(seconds(6)))->wall, seconds(90));
}

TEST(ClockOffsets, AnswersThatCannotBeAreNone) {
  const Machines machines;
  const ClockSample good = machines.ask({}, milliseconds(10), milliseconds(10));
  const auto with = [&](auto change) {
    ClockSample sample = good;
    change(sample);
    ClockOffsets offsets;
    offsets.add(sample);
    return offsets.at(good.answered).has_value();
  };
  EXPECT_TRUE(with([](ClockSample&) {}));
  EXPECT_FALSE(with([](ClockSample& sample) { sample.sent -= milliseconds(1); })) << "left before it came";
  EXPECT_FALSE(with([](ClockSample& sample) { sample.sent += seconds(1); })) << "longer there than here";
  EXPECT_FALSE(with([](ClockSample& sample) { sample.received = sample.sent = TimePoint::max(); }));
  EXPECT_FALSE(with([](ClockSample& sample) { sample.received = sample.sent = TimePoint::min(); }));
  EXPECT_FALSE(with([](ClockSample& sample) { sample.peer_wall = WallTime::max(); }));
  EXPECT_FALSE(with([](ClockSample& sample) { sample.peer_wall = WallTime::min(); }));
}

}  // namespace
}  // namespace fluvial

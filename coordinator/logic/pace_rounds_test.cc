// Rounds of the run's machine in virtual time, with sites that are slow for a while: when rounds close, and which sites
// are drawn.
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <optional>
#include <set>

#include "coordinator/logic/run_machine.h"

namespace fluvial::coordinator {
namespace {

using namespace std::chrono_literals;
using round::Contribution;
using round::ContributorSet;

struct RoundSeen {
  Duration took{};
  std::size_t contributors = 0;
  std::set<SiteId> drawn;
};

// Eight sites that take 4 s and a little each; sites 1 and 2 take `slow` instead while it is set.
class Federation {
 public:
  explicit Federation(double fraction) : machine_(start(fraction)) {
    std::map<SiteId, SiteInfo> sites;
    for (std::uint32_t i = 1; i <= 8; ++i) sites[SiteId(i)] = {Epoch(1), 100};
    opening_ = machine_.sites_changed(sites, now_);
  }

  std::optional<Duration> slow;

  RoundSeen round() {
    RoundSeen seen;
    const TimePoint opened = now_;
    std::optional<TimePoint> timer;
    bool finalise = false;
    const auto note = [&](const Effects& effects) {
      for (const Effect& effect : effects) {
        if (const auto* set = std::get_if<SetTimer>(&effect)) timer = set->at;
        if (const auto* made = std::get_if<Finalise>(&effect)) {
          finalise = true;
          seen.contributors = made->record.contributors.size();
        }
      }
    };
    std::multimap<TimePoint, SiteId> coming;
    for (const round::Participant& participant : record(opening_).participants) {
      seen.drawn.insert(participant.site);
      coming.emplace(opened + time_of(participant.site), participant.site);
    }
    note(machine_.attempt_recorded(machine_.step(), now_));
    while (!finalise) {
      const bool comes = !coming.empty() && (!timer || coming.begin()->first <= *timer);
      now_ = comes ? coming.begin()->first : *timer;
      if (!comes) {
        note(machine_.tick(now_));
        continue;
      }
      const auto first = coming.extract(coming.begin());
      ContributorSet one;
      Contribution entry{.site = first.mapped(), .lease = Epoch(1), .weight = 1};
      entry.times.train = now_ - opened;
      EXPECT_TRUE(one.add(entry).ok());
      const ArrivalId arrival(++arrivals_);
      note(machine_.arrived(arrival, {one, {}, {}}));
      note(machine_.taken(arrival, one, now_));
    }
    seen.took = now_ - opened;
    const RoundId committed = machine_.last_committed().next();
    machine_.finalised(machine_.step(), {RunId(1), ModelVersion(committed.value()), {}, 40}, now_);
    opening_ = machine_.commit_recorded(machine_.step(), now_);
    return seen;
  }

  // How often the two were drawn in that many rounds.
  int drawn(int rounds) {
    int count = 0;
    for (int i = 0; i < rounds; ++i) {
      const RoundSeen seen = round();
      EXPECT_GE(seen.contributors, 4u) << "the quorum";
      count += static_cast<int>(seen.drawn.count(SiteId(1)) + seen.drawn.count(SiteId(2)));
    }
    return count;
  }
  const round::Pace& pace() const { return machine_.pace(); }

 private:
  static RunStart start(double fraction) {
    round::Plan plan;
    plan.name = "pace";
    plan.rounds = 1'000;
    plan.participants_min = 8;
    plan.participants_fraction = fraction;
    plan.quorum = 4;
    return {.run = RunId(1), .plan = plan, .model = {RunId(1), {}, {}, 40}, .epoch = Epoch(5)};
  }
  static const round::AttemptRecord& record(const Effects& effects) {
    for (const Effect& effect : effects) {
      if (const auto* found = std::get_if<RecordAttempt>(&effect)) return found->record;
    }
    ADD_FAILURE() << "no round opens";
    std::abort();
  }
  Duration time_of(SiteId site) const {
    return slow && site <= SiteId(2) ? *slow : 4s + std::chrono::milliseconds(50 * site.value());
  }

  RunMachine machine_;
  Effects opening_;
  TimePoint now_;
  std::uint64_t arrivals_ = 0;
};

TEST(PaceRounds, CloseEarlierFromTheThirdOnAndKeepTheQuorum) {
  Federation federation(1);
  federation.slow = 5min;  // they hang
  EXPECT_EQ(federation.round().took, 30s) << "the plan's soft deadline";
  EXPECT_EQ(federation.round().took, 30s);
  const RoundSeen third = federation.round();
  EXPECT_EQ(third.took, 6'600ms) << "1.5 times the slowest of the others";
  EXPECT_EQ(third.contributors, 6u);
  for (int i = 4; i <= 20; ++i) {
    const RoundSeen seen = federation.round();
    EXPECT_EQ(seen.took, 4'400ms) << "nothing has come from them in three rounds; round " << i;
    EXPECT_EQ(seen.contributors, 6u);
  }
  EXPECT_EQ(federation.pace().find(SiteId(1)), nullptr) << "nobody knows how fast they are";
  EXPECT_FALSE(federation.pace().find(SiteId(3))->straggler);
  federation.slow.reset();
  for (int i = 0; i < 3; ++i) {
    const RoundSeen seen = federation.round();
    EXPECT_EQ(seen.took, 4'400ms) << "all are in";
    EXPECT_EQ(seen.contributors, 8u);
  }
  EXPECT_FALSE(federation.pace().find(SiteId(1))->straggler);
}

TEST(PaceRounds, TheSlowAreDrawnLessAndAgainWhenTheyRecover) {
  Federation federation(0.5);
  const int before = federation.drawn(100);
  EXPECT_NEAR(before, 100, 25) << "four of eight, for two sites";
  federation.slow = 40s;
  federation.drawn(20);  // until they are known
  const int during = federation.drawn(100);
  EXPECT_LT(during, 40);
  EXPECT_GT(during, 3) << "each is still tried";
  federation.slow.reset();
  federation.drawn(40);
  EXPECT_NEAR(federation.drawn(100), 100, 25);
}

}  // namespace
}  // namespace fluvial::coordinator

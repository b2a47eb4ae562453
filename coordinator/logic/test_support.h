// A run of three sites, for tests of its machine.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <initializer_list>
#include <map>

#include "coordinator/logic/run_machine.h"

namespace fluvial::coordinator {

using namespace std::chrono_literals;
using round::Arrival;
using round::Contribution;
using round::ContributorSet;

template <typename T>
const T* find(const Effects& effects) {
  for (const Effect& effect : effects) {
    if (const T* found = std::get_if<T>(&effect)) return found;
  }
  return nullptr;
}

inline round::Plan plan(std::uint64_t quorum = 2) {
  round::Plan plan;
  plan.name = "test";
  plan.rounds = 2;
  plan.participants_min = 3;
  plan.quorum = quorum;
  plan.soft_deadline = 10s;
  plan.hard_deadline = 20s;
  plan.attempts_max = 2;
  return plan;
}

class RunMachineTest : public testing::Test {
 protected:
  static TimePoint at(std::chrono::seconds s) { return TimePoint(s); }
  static std::map<SiteId, SiteInfo> sites(std::uint32_t count) {
    std::map<SiteId, SiteInfo> all;
    for (std::uint32_t i = 1; i <= count; ++i) all[SiteId(i)] = {Epoch(1), 100};
    return all;
  }
  static ContributorSet set_of(std::initializer_list<std::uint32_t> ids) {
    ContributorSet set;
    for (const std::uint32_t id : ids) EXPECT_TRUE(set.add(Contribution{SiteId(id), Epoch(1), 10, {}, 0, {}}).ok());
    return set;
  }
  static RunStart start() {
    return {.run = RunId(1), .plan = plan(), .model = {RunId(1), {}, {}, 40}, .epoch = Epoch(5)};
  }

  // A machine with three sites and its first round open at second 0.
  RunMachine opened() {
    RunMachine machine(start());
    EXPECT_TRUE(machine.begin(at(0s)).empty());
    const Effects record = machine.sites_changed(sites(3), at(0s));
    EXPECT_NE(find<RecordAttempt>(record), nullptr);
    EXPECT_EQ(find<OpenRound>(record), nullptr) << "nothing leaves before the record is durable";
    const Effects open = machine.attempt_recorded(machine.step(), at(0s));
    EXPECT_NE(find<OpenRound>(open), nullptr);
    EXPECT_EQ(find<SetTimer>(open)->at, at(10s));
    return machine;
  }
  static Effects bring(RunMachine& machine, std::uint64_t id, std::initializer_list<std::uint32_t> ids, TimePoint now) {
    const Effects arrived = machine.arrived(ArrivalId(id), Arrival{set_of(ids), {}, {}});
    EXPECT_NE(find<Take>(arrived), nullptr);
    return machine.taken(ArrivalId(id), set_of(ids), now);
  }
  static Effects commit(RunMachine& machine, TimePoint now) {
    const Effects record = machine.finalised(machine.step(), {RunId(1), ModelVersion(1), {}, 40}, now);
    EXPECT_NE(find<RecordCommit>(record), nullptr);
    return machine.commit_recorded(machine.step(), now);
  }
  // A person's commands, with a journal that takes them.
  static Effects resume(RunMachine& machine, TimePoint now) {
    EXPECT_NE(find<RecordStatus>(machine.resume(now)), nullptr);
    return machine.status_recorded(machine.step(), now);
  }
  static Effects stop(RunMachine& machine, TimePoint now) {
    EXPECT_NE(find<RecordStatus>(machine.stop("by hand", now)), nullptr);
    return machine.status_recorded(machine.step(), now);
  }
};

}  // namespace fluvial::coordinator

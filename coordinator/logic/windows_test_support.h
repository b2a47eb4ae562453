// Runs with windows, stepped by hand.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <utility>
#include <vector>

#include "coordinator/logic/test_support.h"

namespace fluvial::coordinator {

class RunWindows : public RunMachineTest {
 protected:
  static RunStart async_start(std::uint64_t goal) {
    RunStart begin = start();
    round::set_mode("async", &begin.plan);
    begin.plan.rounds = 20;
    begin.plan.quorum = 1;
    begin.plan.participants_min = 1;
    begin.plan.async_goal = goal;
    return begin;
  }
  static RunMachine opened(RunStart begin, std::uint32_t count) {
    RunMachine machine(std::move(begin));
    machine.begin(at(0s));
    machine.sites_changed(sites(count), at(0s));
    machine.attempt_recorded(machine.step(), at(0s));
    EXPECT_TRUE(machine.is_open());
    return machine;
  }
  static ContributorSet of(std::uint32_t site, std::uint64_t base, std::uint64_t admitted) {
    ContributorSet set;
    Contribution one{SiteId(site), Epoch(1), 10, {}, 0, {}};
    one.base = ModelVersion(base);
    one.admitted = ModelVersion(admitted);
    EXPECT_TRUE(set.add(one).ok());
    return set;
  }
  static ContributorSet of(std::initializer_list<std::uint32_t> sites, std::uint64_t version) {
    ContributorSet set;
    for (const std::uint32_t site : sites) EXPECT_TRUE(set.merge(of(site, version, version)).ok());
    return set;
  }
  static Effects take(RunMachine& machine, const ContributorSet& in, TimePoint now = at(1s)) {
    static std::uint64_t arrival = 1000;
    const ArrivalId id(++arrival);
    EXPECT_NE(find<Take>(machine.arrived(id, Arrival{in, {}, {}})), nullptr);
    return machine.taken(id, in, now);
  }
  static round::ModelRef model(std::uint64_t version) {
    return {RunId(1), ModelVersion(version), {std::byte{static_cast<unsigned char>(version)}}, 40};
  }
  // Commits what the closed window holds, and opens the next one.
  static Effects go_on(RunMachine& machine) {
    const std::uint64_t version = machine.last_committed().value() + 1;
    EXPECT_NE(find<RecordCommit>(machine.finalised(machine.step(), model(version), at(1s))), nullptr);
    machine.commit_recorded(machine.step(), at(1s));
    return machine.attempt_recorded(machine.step(), at(1s));
  }
  static std::vector<std::uint32_t> participants(const RunMachine& machine) {
    std::vector<std::uint32_t> ids;
    for (const round::Participant& one : machine.attempt().participants) ids.push_back(one.site.value());
    return ids;
  }
};

}  // namespace fluvial::coordinator

// A region's rounds for the tests of this room: three sites, and what they bring.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <initializer_list>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "aggregator/logic/region_machine.h"

namespace fluvial::aggregator {

template <typename T>
std::vector<T> all(const Effects& effects) {
  std::vector<T> found;
  for (const Effect& effect : effects) {
    if (const T* one = std::get_if<T>(&effect)) found.push_back(*one);
  }
  return found;
}

inline TimePoint at(std::chrono::seconds s) { return TimePoint(s); }

inline round::ContributorSet set_of(std::initializer_list<std::uint32_t> ids) {
  round::ContributorSet set;
  for (const std::uint32_t id : ids) EXPECT_TRUE(set.add({SiteId(id), Epoch(1), 10, {}, 0, {}}).ok());
  return set;
}
inline Opening opening(std::uint32_t attempt = 1, std::set<SiteId> counted = {}, std::uint64_t round = 1) {
  Opening opening{RunId(1),
                  RoundId(round),
                  AttemptId(attempt),
                  Epoch(1),
                  {},
                  std::move(counted),
                  {},
                  20,
                  at(std::chrono::seconds(9)),
                  false};
  for (std::uint32_t id = 1; id <= 3; ++id) opening.participants.push_back({SiteId(id), Epoch(1), 100});
  return opening;
}
inline Effects bring(RegionMachine& machine, std::uint64_t id, std::initializer_list<std::uint32_t> ids,
                     TimePoint now) {
  const Effects arrived = machine.arrived(ArrivalId(id), round::Arrival{set_of(ids), {}, {}}, now);
  EXPECT_EQ(all<Take>(arrived).size(), 1u);
  return machine.taken(ArrivalId(id), set_of(ids), now);
}

}  // namespace fluvial::aggregator

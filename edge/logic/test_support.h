// Offers for the tests of a site's machine, and helpers to look at its effects.
#pragma once

#include <gtest/gtest.h>

#include "edge/logic/site_machine.h"

namespace fluvial::edge {

// The first effect of this kind, or null.
template <typename T>
const T* find(const Effects& effects) {
  for (const Effect& effect : effects) {
    if (const T* found = std::get_if<T>(&effect)) return found;
  }
  return nullptr;
}

inline round::ModelRef model(std::uint64_t version) {
  Digest digest{};
  digest[0] = static_cast<std::byte>(version + 1);
  return {RunId(1), ModelVersion(version), digest, 40};
}
inline Offer offer(std::uint64_t round, bool counted = false) {
  Offer offer;
  offer.run = RunId(1);
  offer.round = RoundId(round);
  offer.attempt = AttemptId(1);
  offer.base = model(round - 1);
  offer.counted = counted;
  return offer;
}
inline Pending pending(std::uint64_t round) {
  Digest digest{};
  digest[1] = static_cast<std::byte>(round);
  return {RunId(1), RoundId(round), digest};
}

inline constexpr WorkId kFirst{1};  // the work for the first offer

// A site whose submission for round 1 is on its way.
inline SiteMachine sending() {
  SiteMachine site({});
  EXPECT_NE(find<FetchModel>(site.offered(offer(1))), nullptr);
  EXPECT_NE(find<Train>(site.model_ready(model(0))), nullptr);
  EXPECT_NE(find<Encode>(site.trained(kFirst)), nullptr);
  EXPECT_NE(find<Send>(site.encoded(kFirst, pending(1))), nullptr);
  return site;
}

}  // namespace fluvial::edge

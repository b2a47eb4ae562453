// Late is next (docs/design/late.md): an update that missed its round may enter a later one, with an integer factor by
// its staleness. What a round says of that, who may come in, and what each contribution counts for. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/base/result.h"
#include "core/round/contribution.h"
#include "core/round/plan.h"
#include "core/round/record.h"

namespace fluvial::round {

inline constexpr std::uint32_t kStalenessMost = 16;  // that a plan may allow

// What a round with `late = "next"` tells everybody below.
struct Lateness {
  std::uint32_t staleness_max = 0;     // 1 to kStalenessMost
  std::vector<std::uint32_t> factors;  // by staleness, from 0 to staleness_max + 1; what is later yet counts nowhere
  std::vector<ModelRef> earlier;       // the models before the round's base that an update may be from, newest first
  // Windows (docs/design/windows.md): what was admitted, staged or summed in a round goes on in the next, and may enter
  // so many rounds later. 0: a round takes what was admitted in it alone.
  std::uint32_t drift_max = 0;
  bool operator==(const Lateness&) const = default;
};

// omega(tau) = max(1, round_half_even(2^9 * (1 + tau)^-power)), for 0 to staleness_max + 1.
std::vector<std::uint32_t> staleness_factors(std::uint32_t staleness_max, double power);

// What the plan says of a round on this base; none: late updates go into their sites' residuals. `earlier`: the models
// committed before the base, newest first, those that are known.
std::optional<Lateness> lateness_of(const Plan& plan, const std::vector<ModelRef>& earlier);

// As it comes from a parent. kInvalidArgument: no such factors, or models that are not those before the round's base.
Status check_lateness(const Lateness& lateness, const ModelRef& base, int scale_bits);

// Whether the rounds are windows: one goes over into the next.
inline bool rolls(const std::optional<Lateness>& lateness) { return lateness && lateness->drift_max > 0; }

// Whether an update of round `own` may enter round `open`, as far as their numbers say.
bool may_enter(const Lateness& lateness, RoundId own, RoundId open);

// What is left of an update that came too late for every round: its residual times this.
float late_factor(const std::optional<Lateness>& lateness);

// The digest that the base of this version must have in a round on `base`. Null: no update from it may enter.
const Digest* base_of(const ModelRef& base, const Lateness* lateness, ModelVersion version);

// Each contribution's versions must be those of an update that this round may hold. kStale: admitted in another round
// than it may have been, or from a model that is too old; kInvalidArgument: of a round that knows no old updates.
// `lateness` null: none.
Status check_versions(const ContributorSet& set, ModelVersion base, const Lateness* lateness);

// Of a commit, whose outcomes it decides: all of them, or with `late = "next"` those of the updates that are in or can
// never be used. The others may still enter a later round, if there is one.
CommitRecord decided_by(CommitRecord record, bool last);

}  // namespace fluvial::round

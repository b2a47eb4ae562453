#include "core/round/lateness.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace fluvial::round {
namespace {

// Half to even, whatever the rounding mode says.
double round_half_even(double value) {
  const double below = std::floor(value);
  const double part = value - below;
  if (part != 0.5) return part < 0.5 ? below : below + 1;
  return std::fmod(below, 2) == 0 ? below : below + 1;
}

std::string name_of(SiteId site) { return "site " + std::to_string(site.value()); }

// In this round, or in one shortly before. What was admitted on the first model enters its own round alone: of what is
// fresh there its numbers do not tell the round (Contribution::own_round).
bool may_be_admitted(const Contribution& entry, ModelVersion base, const Lateness& lateness) {
  if (entry.admitted == base) return true;
  return entry.admitted < base && entry.admitted > ModelVersion(0) && entry.admitted >= entry.base &&
         base.value() - entry.admitted.value() <= lateness.drift_max;
}

}  // namespace

std::vector<std::uint32_t> staleness_factors(std::uint32_t staleness_max, double power) {
  std::vector<std::uint32_t> factors;
  for (std::uint32_t staleness = 0; staleness <= staleness_max + 1; ++staleness) {
    const double factor = static_cast<double>(kWholeFactor) * std::pow(1.0 + staleness, -power);
    factors.push_back(static_cast<std::uint32_t>(std::max(1.0, round_half_even(factor))));
  }
  return factors;
}

std::optional<Lateness> lateness_of(const Plan& plan, const std::vector<ModelRef>& earlier) {
  if (!late_is_next(plan)) return std::nullopt;
  Lateness lateness{plan.staleness_max, staleness_factors(plan.staleness_max, plan.staleness_power), earlier};
  if (lateness.earlier.size() > plan.staleness_max) lateness.earlier.resize(plan.staleness_max);
  if (is_async(plan)) lateness.drift_max = plan.async_drift_max;
  return lateness;
}

Status check_lateness(const Lateness& lateness, const ModelRef& base, int scale_bits) {
  const auto wrong = [](const std::string& what) { return Error{Code::kInvalidArgument, "late updates: " + what}; };
  if (lateness.staleness_max == 0 || lateness.staleness_max > kStalenessMost) return wrong("no such staleness");
  if (lateness.drift_max > kStalenessMost) return wrong("no such drift");
  if (scale_bits < kFactorBits) return wrong("the scale has no room for their factors");
  const std::vector<std::uint32_t>& factors = lateness.factors;
  const bool is_table = factors.size() == lateness.staleness_max + 2 && factors.front() == kWholeFactor &&
                        factors.back() >= 1 && std::ranges::is_sorted(factors, std::ranges::greater());
  if (!is_table) return wrong("factors that are none");
  if (lateness.earlier.size() > lateness.staleness_max) return wrong("more models than may be old");
  std::uint64_t version = base.version.value();
  for (const ModelRef& model : lateness.earlier) {
    if (version == 0 || model.run != base.run || model.version != ModelVersion(--version)) {
      return wrong("models that are not those before the base");
    }
  }
  return {};
}

bool may_enter(const Lateness& lateness, RoundId own, RoundId open) {
  return own < open && open.value() - own.value() <= lateness.staleness_max;
}

float late_factor(const std::optional<Lateness>& lateness) {
  if (!lateness) return 1;
  return static_cast<float>(lateness->factors.back()) / static_cast<float>(kWholeFactor);
}

const Digest* base_of(const ModelRef& base, const Lateness* lateness, ModelVersion version) {
  if (version == base.version) return &base.digest;
  if (lateness == nullptr) return nullptr;
  const auto found = std::ranges::find(lateness->earlier, version, &ModelRef::version);
  return found == lateness->earlier.end() ? nullptr : &found->digest;
}

Status check_versions(const ContributorSet& set, ModelVersion base, const Lateness* lateness) {
  for (const auto& [site, entry] : set.entries()) {
    if (entry.base == entry.admitted && (lateness == nullptr || entry.admitted == base)) continue;
    if (lateness == nullptr) {
      return Error{Code::kInvalidArgument, name_of(site) + ": an update of an earlier round, and this one takes none"};
    }
    if (!may_be_admitted(entry, base, *lateness)) {
      return Error{Code::kStale, name_of(site) + " was admitted on model version " +
                                     std::to_string(entry.admitted.value()) + ", expected " +
                                     std::to_string(base.value())};
    }
    if (entry.base > base || base.value() - entry.base.value() > lateness->staleness_max) {
      return Error{Code::kStale, name_of(site) + " trained from model version " + std::to_string(entry.base.value()) +
                                     ", and at most " + std::to_string(lateness->staleness_max) + " before " +
                                     std::to_string(base.value()) + " may enter"};
    }
    if (entry.weight >= kStaleWeightLimit) {
      return Error{Code::kFailedPrecondition, name_of(site) + ": a weight of " + std::to_string(entry.weight) +
                                                  ", and that of an old update is below 2^20"};
    }
  }
  return {};
}

CommitRecord decided_by(CommitRecord record, bool last) {
  if (!record.late_is_next || last) return record;
  record.late.clear();
  std::erase_if(record.refusals, [](const Refusal& refusal) { return !drops_update(refusal.error.code); });
  return record;
}

}  // namespace fluvial::round

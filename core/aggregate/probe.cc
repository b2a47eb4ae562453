#include "core/aggregate/probe.h"

#include <fmt/format.h>

#include "kernels/fixed.h"

namespace fluvial::aggregate {
namespace {

Status check_weight(SiteId site, std::uint32_t weight) {
  if (weight >= 1 && weight < kernels::kWeightEnd) return {};
  return Error{Code::kInvalidArgument,
               fmt::format("site {} has weight {}, expected 1 to {}", site.value(), weight, kernels::kWeightEnd - 1)};
}

}  // namespace

Status Probe::add(SiteId site, std::uint32_t weight) {
  FLUVIAL_TRY(check_weight(site, weight));
  FLUVIAL_ASSIGN(const std::int64_t term, kernels::fixed_term(1.0F, weight, scale_bits_));
  return merge(site, term);
}

Status Probe::merge(SiteId site, std::int64_t sum) {
  std::int64_t& held = sums_[site];
  std::int64_t total = 0;
  if (__builtin_add_overflow(held, sum, &total)) {
    return Error{Code::kDataLoss, fmt::format("the probe of site {} left int64", site.value())};
  }
  held = total;
  return {};
}

Status Probe::merge(const Probe& other) {
  FLUVIAL_CHECK(other.scale_bits_ == scale_bits_, "probes of different scales");
  for (const auto& [site, sum] : other.sums_) FLUVIAL_TRY(merge(site, sum));
  return {};
}

Status Probe::check(std::span<const Contributor> contributors) const {
  std::map<SiteId, std::int64_t> expected;
  for (const Contributor& contributor : contributors) {
    FLUVIAL_TRY(check_weight(contributor.site, contributor.weight));
    FLUVIAL_ASSIGN(const std::int64_t term, kernels::fixed_term(1.0F, contributor.weight, scale_bits_));
    if (!expected.emplace(contributor.site, term).second) {
      return Error{Code::kDataLoss, fmt::format("site {} is named twice", contributor.site.value())};
    }
  }
  for (const auto& [site, sum] : sums_) expected.try_emplace(site, 0);
  for (const auto& [site, value] : expected) {
    const auto found = sums_.find(site);
    const std::int64_t held = found == sums_.end() ? 0 : found->second;
    if (held != value) {
      return Error{Code::kDataLoss, fmt::format("the probe of site {} holds {}, expected {}: its contribution was not "
                                                "counted exactly once as the contributors say",
                                                site.value(), held, value)};
    }
  }
  return {};
}

void Probe::reset(int scale_bits) {
  scale_bits_ = scale_bits;
  sums_.clear();
}

}  // namespace fluvial::aggregate

#include "core/round/contribution.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace fluvial::round {

bool drops_update(Code code) {
  return code == Code::kInvalidArgument || code == Code::kDataLoss || code == Code::kPermissionDenied ||
         code == Code::kConflict;
}

Status ContributorSet::add(Contribution contribution) {
  const SiteId site = contribution.site;
  if (contribution.weight == 0 || contribution.weight >= kWeightLimit) {
    return Error{Code::kInvalidArgument, "site " + std::to_string(site.value()) + ": weight " +
                                             std::to_string(contribution.weight) + ", expected 1 to 2^29 - 1"};
  }
  const std::uint64_t weight = contribution.weight;
  if (!entries_.emplace(site, std::move(contribution)).second) {
    return Error{Code::kAlreadyExists, "site " + std::to_string(site.value()) + " is counted already"};
  }
  total_weight_ += weight;
  return {};
}

Status ContributorSet::merge(const ContributorSet& other) {
  const std::vector<SiteId> both = overlap(other);
  if (!both.empty()) {
    return Error{Code::kAlreadyExists, "site " + std::to_string(both.front().value()) + " is counted already"};
  }
  entries_.insert(other.entries_.begin(), other.entries_.end());
  total_weight_ += other.total_weight_;
  return {};
}

std::vector<SiteId> ContributorSet::overlap(const ContributorSet& other) const {
  std::vector<SiteId> both;
  for (const auto& [site, entry] : other.entries_) {
    if (entries_.contains(site)) both.push_back(site);
  }
  return both;
}

void ContributorSet::forget_metrics() {
  for (auto& [site, entry] : entries_) entry.metrics.clear();
}

void ContributorSet::admitted_on(ModelVersion newest) {
  for (auto& [site, entry] : entries_) entry.admitted = newest;
}

void ContributorSet::admitted_with(SiteId site, std::uint32_t share) {
  const auto found = entries_.find(site);
  if (found != entries_.end()) found->second.share = share;
}

void ContributorSet::admitted_fresh(ModelVersion base) {
  for (auto& [site, entry] : entries_) {
    if (entry.base == ModelVersion() && entry.admitted == ModelVersion()) entry.base = entry.admitted = base;
  }
}

void ContributorSet::spend(const Times& more) {
  for (auto& [site, entry] : entries_) {
    entry.times.train += more.train;
    entry.times.transfer += more.transfer;
    entry.times.merge += more.merge;
  }
}

const Contribution* ContributorSet::find(SiteId site) const {
  const auto found = entries_.find(site);
  return found == entries_.end() ? nullptr : &found->second;
}

void ContributorSet::clear() {
  entries_.clear();
  total_weight_ = 0;
}

std::optional<Share> share_of(const Contribution& contribution, std::span<const std::uint32_t> factors) {
  const auto weight = static_cast<std::uint32_t>(contribution.weight);
  std::uint64_t factor = kWholeFactor;
  if (contribution.base != contribution.admitted) {
    if (contribution.base > contribution.admitted || contribution.staleness() >= factors.size()) return std::nullopt;
    factor = factors[static_cast<std::size_t>(contribution.staleness())];
  }
  if (contribution.share != kWholeFactor) {
    factor = std::max<std::uint64_t>(1, (factor * contribution.share + kWholeFactor / 2) >> kFactorBits);
  }
  if (factor == kWholeFactor) return Share{weight, 0};
  const std::uint64_t product = contribution.weight * factor;  // both below 2^29
  if (product == 0 || product >= kWeightLimit) return std::nullopt;
  return Share{static_cast<std::uint32_t>(product), kFactorBits};
}

Status check_probe(const ContributorSet& set, int scale_bits, std::span<const std::uint32_t> factors) {
  for (const auto& [site, entry] : set.entries()) {
    std::int64_t expected = 0;
    const std::optional<Share> share = share_of(entry, factors);
    const int bits = share ? scale_bits - share->down_bits : 0;
    const bool fits =
        share && bits >= 0 && bits < 63 && !__builtin_mul_overflow(share->weight, std::int64_t{1} << bits, &expected);
    if (!fits || entry.probe != expected) {
      return Error{Code::kDataLoss,
                   "the probe of site " + std::to_string(site.value()) + " is " + std::to_string(entry.probe) +
                       ", expected " +
                       (share ? std::to_string(share->weight) + " * 2^" + std::to_string(bits) : "that it is not in")};
    }
  }
  return {};
}

}  // namespace fluvial::round

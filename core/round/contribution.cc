#include "core/round/contribution.h"

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

Status check_probe(const ContributorSet& set, int scale_bits) {
  for (const auto& [site, entry] : set.entries()) {
    std::int64_t expected = 0;
    const bool fits = scale_bits >= 0 && scale_bits < 63 &&
                      !__builtin_mul_overflow(entry.weight, std::int64_t{1} << scale_bits, &expected);
    if (!fits || entry.probe != expected) {
      return Error{Code::kDataLoss, "the probe of site " + std::to_string(site.value()) + " is " +
                                        std::to_string(entry.probe) + ", expected " + std::to_string(entry.weight) +
                                        " * 2^" + std::to_string(scale_bits)};
    }
  }
  return {};
}

}  // namespace fluvial::round

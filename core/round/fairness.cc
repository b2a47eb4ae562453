#include "core/round/fairness.h"

#include <algorithm>

#include "core/round/lateness.h"

namespace fluvial::round {
namespace {

__extension__ using Wide = unsigned __int128;

struct Rate {
  std::uint64_t parts = 0;  // of 512
  std::uint64_t windows = 1;
};

bool is_less(const Rate& a, const Rate& b) { return a.parts * b.windows < b.parts * a.windows; }

std::uint32_t share_by(const Rate& rate, const Rate& greatest) {
  const std::uint64_t above = kLeastShare * greatest.parts * rate.windows;
  const std::uint64_t below = greatest.windows * rate.parts;
  return static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>((2 * above + below) / (2 * below), kLeastShare, kWholeFactor));
}

std::uint64_t share_times_weight(const Contribution& entry) { return entry.share * entry.weight; }  // below 2^38

}  // namespace

Divisor by_weights(const ContributorSet& counted) { return {counted.total_weight(), 0}; }

Rates::Rates(const std::set<SiteId>& before) {
  for (const SiteId site : before) first_.emplace(site, ModelVersion());
}

void Rates::committed(ModelVersion made, const ContributorSet& counted, std::span<const std::uint32_t> factors) {
  Window window{made, {}};
  for (const auto& [id, entry] : counted.entries()) {
    const std::uint32_t parts = entry.staleness() < factors.size() ? factors[entry.staleness()] : kWholeFactor;
    window.counted.push_back(id);
    Site& site = sites_[id];
    site.in.push_back({made, entry.weight, parts});
    site.weight_sum += entry.weight;
    site.parts_sum += parts;
    first_.try_emplace(id, made);
  }
  windows_.push_back(std::move(window));
  if (windows_.size() > kRateWindows) forget_oldest();
  tables_[made] = present();
  std::erase_if(tables_, [&](const auto& one) { return made.value() - one.first.value() > kStalenessMost; });
}

void Rates::forget_oldest() {
  for (const SiteId id : windows_.front().counted) {
    const auto found = sites_.find(id);
    Site& site = found->second;
    site.weight_sum -= site.in.front().weight;
    site.parts_sum -= site.in.front().parts;
    site.in.pop_front();
    if (site.in.empty()) sites_.erase(found);
  }
  windows_.pop_front();
}

Rates::Table Rates::present() const {
  const std::uint64_t newest = windows_.back().made.value();
  const auto rate_of = [&](const Site& site) {
    return Rate{site.parts_sum, newest - site.in.front().made.value() + 1};
  };
  Rate greatest;
  for (const auto& [id, site] : sites_) {
    if (site.in.size() > 1) greatest = std::max(greatest, rate_of(site), is_less);  // once is no rate
  }
  Table table{{}, share_by(Rate{kWholeFactor, kRateWindows + 1}, greatest)};
  for (const auto& [id, site] : sites_) table.shares[id] = share_by(rate_of(site), greatest);
  return table;
}

std::uint32_t Rates::share(SiteId site) const {
  return share(site, windows_.empty() ? ModelVersion() : windows_.back().made).value_or(kLeastShare);
}

std::optional<std::uint32_t> Rates::share(SiteId site, ModelVersion admitted) const {
  if (admitted == ModelVersion() || windows_.empty()) return kLeastShare;  // no commit is known, and nobody is fast
  const auto table = tables_.find(admitted);
  if (table == tables_.end()) return std::nullopt;
  const auto found = table->second.shares.find(site);
  if (found != table->second.shares.end()) return found->second;
  const auto first = first_.find(site);
  return first == first_.end() || first->second > admitted ? kLeastShare : table->second.long_ago;
}

Divisor Rates::divisor(const ContributorSet& counted) const {
  std::uint64_t inside = 0, most = 0;
  for (const auto& [site, entry] : counted.entries()) {
    inside += share_times_weight(entry);
    most = std::max(most, share_times_weight(entry));
  }
  Wide before = 0;
  std::uint64_t updates = 0;
  for (const auto& [id, site] : sites_) {
    before += Wide{share(id)} * site.weight_sum;
    updates += site.in.size();
  }
  if (updates == 0) return {inside, kFactorBits};
  const auto average = static_cast<std::uint64_t>((2 * before * counted.size() + updates) / (2 * updates));
  return {std::max({average, most, (inside + 1) / 2}), kFactorBits};
}

}  // namespace fluvial::round

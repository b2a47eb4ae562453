#include "core/round/sampling.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/rng.h"

namespace fluvial::round {

std::vector<SiteId> sample_sites(const std::map<SiteId, Lot>& lots, double fraction, std::uint64_t seed,
                                 RoundId round) {
  const double wanted = std::ceil(fraction * static_cast<double>(lots.size()));
  std::vector<SiteId> chosen = draw_sites(lots, static_cast<std::size_t>(std::max(wanted, 0.0)), seed, round);
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

std::vector<SiteId> draw_sites(const std::map<SiteId, Lot>& lots, std::size_t count, std::uint64_t seed,
                               RoundId round) {
  const std::size_t needed = std::min(lots.size(), count);
  const std::uint64_t round_seed = Rng(Rng(seed).next() ^ (round.value() * 0x9e3779b97f4a7c15ULL)).next();
  std::vector<std::pair<double, SiteId>> keys;  // -log of the key: the smallest are drawn
  for (const auto& [site, lot] : lots) {
    const std::uint64_t key = lot.key != 0 ? lot.key : site.value();
    Rng rng(round_seed ^ (key * 0xd1b54a32d192ed03ULL));
    keys.emplace_back(-std::log1p(-rng.uniform()) / lot.weight, site);
  }
  std::partial_sort(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(needed), keys.end());
  std::vector<SiteId> chosen;
  for (std::size_t i = 0; i < needed; ++i) chosen.push_back(keys[i].second);
  return chosen;
}

std::uint64_t participants_min_for(std::uint64_t sites_enrolled, std::uint64_t quorum) {
  const std::uint64_t half = std::max((sites_enrolled + 1) / 2, std::min<std::uint64_t>(sites_enrolled, 2));
  return std::max(half, quorum);
}

}  // namespace fluvial::round

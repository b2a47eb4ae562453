#include "core/round/sampling.h"

#include <algorithm>
#include <cmath>

#include "core/base/rng.h"

namespace fluvial::round {

std::vector<SiteId> sample_sites(const std::vector<SiteId>& connected, double fraction, std::uint64_t seed,
                                 RoundId round) {
  std::vector<SiteId> sites = connected;
  std::sort(sites.begin(), sites.end());
  const double wanted = std::ceil(fraction * static_cast<double>(sites.size()));
  std::size_t needed = std::min(sites.size(), static_cast<std::size_t>(std::max(wanted, 0.0)));
  if (needed == sites.size()) return sites;
  Rng rng(Rng(seed).next() ^ (round.value() * 0x9e3779b97f4a7c15ULL));
  std::vector<SiteId> chosen;
  for (std::size_t i = 0; i < sites.size() && needed > 0; ++i) {
    if (rng.below(sites.size() - i) < needed) {
      chosen.push_back(sites[i]);
      --needed;
    }
  }
  return chosen;
}

}  // namespace fluvial::round

#include "simulator/run/capacity.h"

#include <algorithm>
#include <cmath>

namespace fluvial::simulator {
namespace {

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

// The value that `part` of the sorted ones do not exceed.
double quantile(const std::vector<double>& sorted, double part) {
  const auto rank = static_cast<std::size_t>(std::ceil(part * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(rank, 1, sorted.size()) - 1];
}

}  // namespace

Capacity capacity_of(const SeedResult& result) {
  Capacity capacity;
  capacity.rounds = result.rounds.size();
  if (result.rounds.empty()) return capacity;
  const auto count = static_cast<double>(result.rounds.size());
  std::vector<double> lasted;
  for (const RoundReport& round : result.rounds) {
    lasted.push_back(seconds(round.committed - round.opened));
    capacity.participants += static_cast<double>(round.participants) / count;
    capacity.stragglers += static_cast<double>(round.participants - round.contributors) / count;
  }
  const double whole = seconds(result.rounds.back().committed - result.rounds.front().opened);
  if (whole > 0) capacity.rounds_per_hour = 3600 * count / whole;
  std::ranges::sort(lasted);
  capacity.round_p50_s = quantile(lasted, 0.5);
  capacity.round_p95_s = quantile(lasted, 0.95);
  capacity.round_max_s = lasted.back();
  for (const TierTraffic& tier : result.tiers) {
    capacity.tiers.push_back(
        {tier, static_cast<double>(tier.up_bytes) / count, static_cast<double>(tier.down_bytes) / count});
  }
  return capacity;
}

}  // namespace fluvial::simulator

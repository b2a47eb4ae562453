#include "simulator/checks/fairness.h"

#include <algorithm>

#include "simulator/checks/truth.h"

namespace fluvial::simulator {
namespace {

__extension__ using WideUnsigned = unsigned __int128;

constexpr std::uint64_t kWindows = 256;

// Calls visit(round, contributors) for the windows that a rate at `newest` is over, the oldest first.
template <typename Visit>
void each_window(const Commits& commits, std::uint64_t newest, Visit&& visit) {
  for (const auto& [round, row] : commits) {
    if (round.value() <= newest && round.value() + kWindows > newest) visit(round.value(), row.record.contributors);
  }
}

struct Tally {
  std::uint64_t times = 0;
  std::uint64_t parts = 0;  // of 512, in all
  std::uint64_t first = 0;
};

std::map<SiteId, Tally> tallies(const Commits& commits, const round::Plan& plan, std::uint64_t newest) {
  std::map<SiteId, Tally> all;
  each_window(commits, newest, [&](std::uint64_t round, const round::ContributorSet& in) {
    for (const auto& [site, entry] : in.entries()) {
      Tally& tally = all[site];
      if (tally.times++ == 0) tally.first = round;
      tally.parts += parts_of_512(plan, entry.admitted.value() - entry.base.value());
    }
  });
  return all;
}

// The greatest p up to 512 with p - 1/2 <= 32 * (rate of the fastest) / (own rate); 32 at least.
std::uint32_t share_by(const std::map<SiteId, Tally>& all, std::uint64_t parts, std::uint64_t of,
                       std::uint64_t newest) {
  std::uint32_t greatest = 32;
  for (const auto& [id, other] : all) {
    if (other.times < 2) continue;
    const std::uint64_t above = 64 * other.parts * of;
    const std::uint64_t below = (newest + 1 - other.first) * parts;
    while (greatest < 512 && (2 * greatest + 1) * below <= above) ++greatest;
  }
  return greatest;
}

std::uint32_t share_in(const Commits& commits, const std::map<SiteId, Tally>& all, SiteId site, std::uint64_t newest) {
  const auto own = all.find(site);
  if (own != all.end()) return share_by(all, own->second.parts, newest + 1 - own->second.first, newest);
  const bool ever = std::ranges::any_of(commits, [&](const auto& one) {
    return one.first.value() <= newest && one.second.record.contributors.contains(site);
  });
  return ever ? share_by(all, 512, kWindows + 1, newest) : 32;
}

}  // namespace

std::uint32_t fair_share(const Commits& commits, const round::Plan& plan, SiteId site, std::uint64_t admitted) {
  return share_in(commits, tallies(commits, plan, admitted), site, admitted);
}

std::uint64_t fair_divisor(const Commits& commits, const round::Plan& plan, const round::ContributorSet& in,
                           std::uint64_t newest) {
  std::uint64_t own = 0, most = 0;
  for (const auto& [site, entry] : in.entries()) {
    const std::uint64_t counts_for = fair_share(commits, plan, site, entry.admitted.value()) * entry.weight;
    own += counts_for;
    most = std::max(most, counts_for);
  }
  const std::map<SiteId, Tally> all = tallies(commits, plan, newest);
  WideUnsigned sum = 0;
  std::uint64_t updates = 0;
  each_window(commits, newest, [&](std::uint64_t, const round::ContributorSet& before) {
    for (const auto& [site, entry] : before.entries()) {
      sum += WideUnsigned{share_in(commits, all, site, newest)} * entry.weight;
      ++updates;
    }
  });
  if (updates == 0) return own;
  const WideUnsigned twice = 2 * sum * in.size() / updates;  // the nearest whole number, the greater of two
  return std::max({most, (own + 1) / 2, static_cast<std::uint64_t>((twice + 1) / 2)});
}

}  // namespace fluvial::simulator

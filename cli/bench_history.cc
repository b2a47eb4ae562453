#include "cli/bench_history.h"

#include <algorithm>

namespace fluvial::cli {
namespace {

bool is_lost(Fate fate) { return fate == Fate::kLost; }

bool is_likelier(const History& a, const History& b) {
  const auto of_a = std::ranges::count_if(a, is_lost), of_b = std::ranges::count_if(b, is_lost);
  if (of_a != of_b) return of_a < of_b;
  return same_losses(a, b) ? a < b : std::ranges::lexicographical_compare(a, b, {}, is_lost, is_lost);
}

}  // namespace

std::vector<History> histories_of(std::span<const MissedRound> missed, std::size_t most) {
  std::vector<History> all(1);
  for (const MissedRound& round : missed) {
    History fates = {Fate::kFolded};
    if (round.lends) fates.push_back(Fate::kSent);
    if (!round.certain) fates.push_back(Fate::kLost);
    if (all.size() * fates.size() > most) return {};
    std::vector<History> longer;
    for (const History& history : all) {
      for (const Fate fate : fates) longer.emplace_back(history).push_back(fate);
    }
    all = std::move(longer);
  }
  std::ranges::sort(all, is_likelier);
  return all;
}

bool same_losses(const History& a, const History& b) { return std::ranges::equal(a, b, {}, is_lost, is_lost); }

}  // namespace fluvial::cli

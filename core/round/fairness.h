// Fairness by rate (docs/design/windows.md, "Fairness"): in windows a fast site is in more often than a slow one, so
// each update counts for the less the more often its site was counted, and the sum is divided by what a window of so
// many updates weighs on average. Pure: both are functions of the commits before.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "core/round/contribution.h"
#include "core/round/plan.h"

namespace fluvial::round {

inline constexpr std::uint64_t kRateWindows = 256;   // a rate is over so many windows at most
inline constexpr std::uint32_t kRateRatioMost = 16;  // a slow site's update counts for so many of the fastest's at most
inline constexpr std::uint32_t kLeastShare = kWholeFactor / kRateRatioMost;  // the fastest site's, and a new one's
// How many windows a coordinator must know to go on as the one before it: rates, and what was admitted up to so many
// windows ago.
inline constexpr std::uint64_t kRateHistory = kRateWindows + 16;

// What a window's sum is divided by: the mean is sum * 2^-(scale_bits - bits) / value.
struct Divisor {
  std::uint64_t value = 0;
  int bits = 0;
  bool operator==(const Divisor&) const = default;
};
Divisor by_weights(const ContributorSet& counted);  // the sum of the weights

class Rates {
 public:
  Rates() = default;
  explicit Rates(const std::set<SiteId>& before);  // who was counted before the first window that it is told of

  // Each window's commit in order, and the model that it made. `factors`: by staleness (lateness.h).
  void committed(ModelVersion made, const ContributorSet& counted, std::span<const std::uint32_t> factors);

  // What an update counts for that was admitted on this model, in 1/512: kLeastShare * (greatest rate / its site's
  // rate), rounded half up, kLeastShare at least and 512 at most. A site's rate: its updates of the last kRateWindows,
  // each with the factor of its age, over the windows since the first of them; the greatest is among the sites that
  // have two or more. Of a site that was counted before those windows alone: 1 / (kRateWindows + 1). One that never was
  // has kLeastShare. None: a model that is too old to be known.
  std::optional<std::uint32_t> share(SiteId site, ModelVersion admitted) const;
  std::uint32_t share(SiteId site) const;  // admitted on the newest model

  // As many updates as are in, times the mean of share * weight over those that counted before, by the present shares.
  // At least the greatest share * weight that is in, so that no update moves the model by more than itself, and half of
  // their sum, so that no window does by more than twice the mean of its updates. In the first window the sum.
  Divisor divisor(const ContributorSet& counted) const;

 private:
  struct Window {
    ModelVersion made;
    std::vector<SiteId> counted;
  };
  struct Update {
    ModelVersion made;
    std::uint64_t weight = 0;
    std::uint32_t parts = 0;  // of 512, by its age
  };
  struct Site {
    std::deque<Update> in;  // of windows_
    std::uint64_t weight_sum = 0;
    std::uint64_t parts_sum = 0;
  };
  struct Table {
    std::map<SiteId, std::uint32_t> shares;  // of those that were counted in the windows before
    std::uint32_t long_ago;                  // of those that were before that
  };
  void forget_oldest();
  Table present() const;

  std::deque<Window> windows_;  // the last kRateWindows
  std::map<SiteId, Site> sites_;
  std::map<SiteId, ModelVersion> first_;  // the model that each site's first update made; 0: before the first window
  std::map<ModelVersion, Table> tables_;  // of the newest model and those that matter still
};

}  // namespace fluvial::round

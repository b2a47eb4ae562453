// The services' arithmetic against the oracle's, over more windows than a rate is over.
#include "simulator/checks/fairness.h"

#include <gtest/gtest.h>

#include "core/base/rng.h"
#include "core/round/fairness.h"
#include "core/round/lateness.h"

namespace fluvial::simulator {
namespace {

constexpr std::uint32_t kSites = 12;

// Each site has a rate of its own; some come late, one never comes again.
bool is_in(Rng& rng, std::uint32_t site, std::uint64_t window) {
  if (site == 1) return true;
  if (site == 2) return window == 3;
  if (site >= 10 && window < 200) return false;
  return rng.below(site * site) == 0;
}

TEST(Fairness, ServicesAndOracleAgree) {
  Rng rng(7);
  round::Plan plan;
  round::set_mode("async", &plan);
  const std::vector<std::uint32_t> factors = round::staleness_factors(plan.staleness_max, plan.staleness_power);
  round::Rates rates;
  Commits commits;
  for (std::uint64_t window = 1; window <= 700; ++window) {
    store::CommitRow row;
    for (std::uint32_t id = 1; id <= kSites; ++id) {
      if (!is_in(rng, id, window)) continue;
      const std::uint64_t back = rng.below(std::min<std::uint64_t>(window, 4));
      round::Contribution one{.site = SiteId(id), .weight = 1 + rng.below(1000), .metrics = {}, .times = {}};
      one.admitted = ModelVersion(window - 1 - back);
      one.base = ModelVersion(one.admitted.value() - rng.below(std::min<std::uint64_t>(one.admitted.value() + 1, 10)));
      one.share = *rates.share(SiteId(id), one.admitted);
      ASSERT_EQ(one.share, fair_share(commits, plan, SiteId(id), one.admitted.value())) << window << ", site " << id;
      ASSERT_TRUE(row.record.contributors.add(std::move(one)).ok());
    }
    const round::ContributorSet in = row.record.contributors;
    ASSERT_EQ(rates.divisor(in).value, fair_divisor(commits, plan, in, window - 1)) << window;
    rates.committed(ModelVersion(window), in, factors);
    commits.emplace(RoundId(window), std::move(row));
  }
}

}  // namespace
}  // namespace fluvial::simulator

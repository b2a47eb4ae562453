#include "coordinator/service/share_audit.h"

#include <algorithm>

#include "core/round/lateness.h"

namespace fluvial::coordinator {

Result<ShareAudit> ShareAudit::before(store::CoordinatorJournal& journal, const store::RunRow& run, RoundId from) {
  ShareAudit audit;
  audit.is_fair_ = round::is_fair(run.plan);
  if (!audit.is_fair_) return audit;
  audit.factors_ = round::staleness_factors(run.plan.staleness_max, run.plan.staleness_power);
  const std::uint64_t first = from.value() - std::min(from.value() - 1, round::kRateHistory);
  FLUVIAL_ASSIGN(const std::vector<store::CommitRow> rows,
                 journal.commits(run.id, RoundId(first), from.value() - first));
  for (const store::CommitRow& row : rows) {
    if (row.record.round < from) audit.goes_on(row.record);
  }
  return audit;
}

void ShareAudit::goes_on(const round::CommitRecord& record) {
  if (rounds_++ == 0) from_the_first_ = record.round == RoundId(1);
  for (const auto& [site, entry] : record.contributors.entries()) seen_.insert(site);
  rates_.committed(ModelVersion(record.round.value()), record.contributors, factors_);
}

// Of a site that is in none of the rounds at hand nobody can tell whether it was in one before.
bool ShareAudit::is_known(SiteId site) const {
  return from_the_first_ || (rounds_ >= round::kRateHistory && seen_.contains(site));
}

std::vector<std::string> ShareAudit::faults_of(const round::CommitRecord& record) {
  if (rounds_ == 0) from_the_first_ = record.round == RoundId(1);
  std::vector<std::string> faults;
  for (const auto& [site, entry] : record.contributors.entries()) {
    if (is_fair_ && !is_known(site)) continue;
    const std::optional<std::uint32_t> share =
        is_fair_ ? rates_.share(site, entry.admitted) : std::optional(round::kWholeFactor);
    if (!share || *share == entry.share) continue;
    faults.push_back("site " + std::to_string(site.value()) + ": the commit holds it as counting for " +
                     std::to_string(entry.share) + " of 512, and the commits before give " + std::to_string(*share));
  }
  if (is_fair_) goes_on(record);
  return faults;
}

}  // namespace fluvial::coordinator

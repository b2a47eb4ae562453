#include "coordinator/service/pace_report.h"

#include <utility>

namespace fluvial::coordinator {
namespace {

double seconds(Duration time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

PaceReport::PaceReport(telemetry::Metrics& metrics, telemetry::Logger log, NameOf name_of)
    : log_(std::move(log)),
      name_of_(std::move(name_of)),
      site_round_seconds_(metrics.histogram("site_round_seconds")),
      stragglers_count_(metrics.gauge("stragglers")),
      soft_deadline_seconds_(metrics.gauge("soft_deadline_seconds")),
      scores_(metrics, "site_straggler_score") {}

void PaceReport::round_opened(Duration soft_deadline) const { soft_deadline_seconds_.set(seconds(soft_deadline)); }

void PaceReport::round_closed(const round::Pace& pace, const round::ContributorSet& contributors) {
  for (const auto& [site, entry] : contributors.entries()) {
    if (entry.times.known()) site_round_seconds_.observe(seconds(entry.times.total()));
  }
  std::set<SiteId> now;
  std::erase_if(scored_, [&](SiteId site) {  // of whom nothing is known any more
    const bool is_gone = pace.find(site) == nullptr;
    if (is_gone) (void)scores_.set({{"site", name_of_(site)}}, 1);
    return is_gone;
  });
  for (const auto& [site, one] : pace.sites()) {
    if (one.straggler) now.insert(site);
    if (one.straggler) scored_.insert(site);
    if (scored_.contains(site)) (void)scores_.set({{"site", name_of_(site)}}, one.score);
    if (one.straggler == stragglers_.contains(site)) continue;
    log_.info(one.straggler ? "site is a straggler" : "site is no straggler any more",
              {{"site", name_of_(site)},
               {"score", one.score},
               {"p50_s", seconds(one.total.quantile(0.5))},
               {"late", one.late},
               {"rounds", one.rounds}});
  }
  stragglers_ = std::move(now);
  stragglers_count_.set(static_cast<double>(stragglers_.size()));
}

boost::json::object pace_object(const round::SitePace& pace) {
  return {{"rounds", pace.rounds},
          {"late", pace.late},
          {"p50_s", seconds(pace.total.quantile(0.5))},
          {"p95_s", seconds(pace.total.quantile(0.95))},
          {"train_p50_s", seconds(pace.train.quantile(0.5))},
          {"transfer_p50_s", seconds(pace.transfer.quantile(0.5))},
          {"merge_p50_s", seconds(pace.merge.quantile(0.5))},
          {"score", pace.score},
          {"straggler", pace.straggler}};
}

}  // namespace fluvial::coordinator

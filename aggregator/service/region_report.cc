#include "aggregator/service/region_report.h"

#include <utility>

namespace fluvial::aggregator {

RegionReport::RegionReport(telemetry::Metrics& metrics, telemetry::Logger log)
    : log_(std::move(log)),
      counts_(metrics),
      partial_seconds_(telemetry::seconds_histogram(metrics, "partial_seconds",
                                                    "From a partial's first frame to the parent's receipt")) {}

void RegionReport::parent_up(const std::string& parent) { log_.info("parent up", {{"parent", parent}}); }

void RegionReport::parent_down(const Error& why) { log_.warn("parent down", {{"reason", why.to_string()}}); }

void RegionReport::parentless(std::size_t children) {
  log_.warn("no parent for too long: the children go to the coordinator", {{"children", children}});
}

void RegionReport::child_joined(const tree::Child& child) {
  log_.info("child joined", {{"name", child.name}, {"role", role_name(child.role)}, {"lease_epoch", child.lease}});
}

void RegionReport::lease_not_taken(const Error& why) {
  log_.error("the lease is not taken", {{"reason", why.message}});
}

void RegionReport::history_begins(round::HistoryId history, Epoch at) {
  log_.warn("the coordinator was restored from a backup: another history of the federation",
            {{"history", history}, {"began_at_epoch", at}});
}

void RegionReport::round_said(const Opening& opening) {
  log_.info("round open", {{"run", opening.run},
                           {"round", opening.round},
                           {"attempt", opening.attempt},
                           {"participants", opening.participants.size()},
                           {"counted", opening.counted.size()}});
}

void RegionReport::round_opened(const Opening& opening, std::size_t participants) {
  counts_.attempts.add();
  counts_.round.set(static_cast<double>(opening.round.value()));
  counts_.participants.set(static_cast<double>(participants));
}

void RegionReport::site_refused(const Opening& opening, const round::Refusal& refusal) {
  log_.warn(
      "site refused",
      {{"run", opening.run}, {"round", opening.round}, {"site", refusal.site}, {"reason", refusal.error.to_string()}});
}

void RegionReport::sum_made_again(const Opening& opening, NodeId child, const Error& error) {
  log_.error("the sum is made again without an update",
             {{"run", opening.run}, {"round", opening.round}, {"child", child}, {"reason", error.to_string()}});
}

void RegionReport::partial_sent(RunId run, RoundId round, const SendPartial& partial, const Status& sent) {
  log_.info(sent.ok() ? "partial sent" : "partial not sent", {{"run", run},
                                                              {"round", round},
                                                              {"contributors", partial.contributors.size()},
                                                              {"missing", partial.missing.size()},
                                                              {"reason", sent.ok() ? "" : sent.error().to_string()}});
}

void RegionReport::partial_refused(const v1::Receipt& receipt, const Error& error) {
  log_.warn("partial refused by the parent", {{"run", receipt.run()},
                                              {"round", receipt.round()},
                                              {"reason", error.to_string()},
                                              {"without", receipt.without_size()}});
}

void RegionReport::partial_took(Duration time) {
  partial_seconds_.observe(std::chrono::duration<double>(time).count());
}

void RegionReport::committed(const wire::Commit& commit) {
  counts_.rounds_committed.add();
  counts_.contributions_counted.add(static_cast<double>(commit.contributors.size()));
  log_.info("round committed",
            {{"run", commit.run}, {"round", commit.round}, {"contributors", commit.contributors.size()}});
}

}  // namespace fluvial::aggregator

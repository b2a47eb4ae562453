#include "aggregator/service/region_report.h"

#include <utility>

namespace fluvial::aggregator {

RegionReport::RegionReport(telemetry::Metrics& metrics, telemetry::Logger log)
    : log_(std::move(log)),
      counts_(metrics),
      partial_seconds_(metrics.histogram("partial_seconds")),
      partials_sent_(metrics.counter("partials_total", {{"outcome", "sent"}})),
      partials_failed_(metrics.counter("partials_total", {{"outcome", "failed"}})),
      partials_refused_(metrics.counter("partials_total", {{"outcome", "refused"}})),
      sites_(metrics.gauge("members", {{"role", "site"}})),
      aggregators_(metrics.gauge("members", {{"role", "aggregator"}})),
      model_version_(metrics.gauge("model_version")) {}

telemetry::Logger RegionReport::round_log(const Opening& opening) const {
  return log_.with({{"run", opening.run}, {"round", opening.round}, {"attempt", opening.attempt}});
}

// Names are known of who was a child; deeper members are told of by their numbers.
telemetry::Field RegionReport::field_of(std::string_view key, NodeId node) const {
  const auto found = names_.find(node);
  if (found != names_.end()) return {key, found->second};
  return {std::string(key) + "_id", node};
}

void RegionReport::parent_up(const std::string& parent) { log_.info("parent up", {{"parent", parent}}); }

void RegionReport::parent_down(const Error& why) {
  if (why.code == Code::kStale) {  // the coordinator has another for it: a move that was planned
    log_.info("sent to another parent", {{"reason", why.message}});
  } else if (why.code != Code::kCancelled) {  // this node is stopping
    log_.warn("lost the parent; the coordinator is asked for another", {{"reason", why.to_string()}});
  }
}

void RegionReport::parentless(std::size_t children) {
  log_.warn("no parent for too long; the children are sent to the coordinator", {{"children", children}});
}

void RegionReport::child_joined(const tree::Child& child) {
  if (names_.size() < kNamesMax) names_.insert_or_assign(child.node, child.name);
  log_.info("child joined",
            {{"member", child.name}, {"member_role", role_name(child.role)}, {"lease_epoch", child.lease}});
}

void RegionReport::members_passed_over(NodeId child, std::size_t members) {
  log_.warn("a child speaks for members that are not below it; they are passed over",
            {field_of("member", child), {"members", members}});
}

void RegionReport::lease_not_taken(const Error& why) {
  log_.error("the lease is not taken; another is asked for", {{"reason", why.message}});
}

void RegionReport::history_begins(round::HistoryId history, Epoch at) {
  log_.warn("another history of the federation; what is here of the one before is dropped",
            {{"history", std::to_string(history.value())}, {"began_at_epoch", at}});
}

void RegionReport::round_said(const Opening& opening) {
  log_.info("round open", {{"run", opening.run},
                           {"round", opening.round},
                           {"attempt", opening.attempt},
                           {"pass", opening.subject.pass ? opening.subject.pass->index + 1 : 1},
                           {"participants", opening.participants.size()},
                           {"counted_before", opening.counted.size()}});
}

void RegionReport::round_opened(const Opening& opening, std::size_t participants) {
  if (!opening.subject.pass || opening.subject.pass->index == 0) counts_.attempts.add();
  counts_.round.set(static_cast<double>(opening.round.value()));
  counts_.participants.set(static_cast<double>(participants));
}

void RegionReport::site_refused(const Opening& opening, const round::Refusal& refusal) {
  round_log(opening).warn("site refused; the round goes on without it",
                          {field_of("site", refusal.site), {"reason", refusal.error.to_string()}});
}

void RegionReport::sum_made_again(const Opening& opening, NodeId child, const Error& error) {
  round_log(opening).error("the sum failed; it is made again without an update",
                           {field_of("member", child), {"reason", error.to_string()}});
}

void RegionReport::partial_sent(RunId run, RoundId round, const SendPartial& partial, const Status& sent) {
  (sent.ok() ? partials_sent_ : partials_failed_).add();
  const telemetry::Logger log = log_.with({{"run", run}, {"round", round}});
  if (sent.ok()) {
    log.info("partial sent", {{"contributors", partial.contributors.size()}, {"missing", partial.missing.size()}});
  } else {  // overtaken, or the parent is gone: the next opening asks for it
    log.info("partial not sent", {{"reason", sent.error().to_string()}});
  }
}

void RegionReport::partial_refused(const v1::Receipt& receipt, const Error& error) {
  partials_refused_.add();
  log_.warn("partial refused by the parent; it is made again without what the parent names, or given up",
            {{"run", receipt.run()},
             {"round", receipt.round()},
             {"code", code_name(error.code)},
             {"reason", error.message},
             {"without", receipt.without_size()}});
}

void RegionReport::partial_took(Duration time) {
  partial_seconds_.observe(std::chrono::duration<double>(time).count());
}

void RegionReport::committed(const wire::Commit& commit) {
  counts_.rounds_committed.add();
  counts_.contributions_counted.add(static_cast<double>(commit.contributors.size()));
  log_.info("round committed", {{"run", commit.run},
                                {"round", commit.round},
                                {"attempt", commit.attempt},
                                {"contributors", commit.contributors.size()},
                                {"model_version", commit.model.version}});
}

void RegionReport::measured(std::size_t sites, std::size_t aggregators, ModelVersion model) {
  sites_.set(static_cast<double>(sites));
  aggregators_.set(static_cast<double>(aggregators));
  model_version_.set(static_cast<double>(model.value()));
}

}  // namespace fluvial::aggregator

#include "core/transfer/cut.h"

#include <utility>

namespace fluvial::transfer {

wire::Opening opening_of(const round::AttemptRecord& attempt, const round::Plan& plan, const round::Schema& schema) {
  wire::Opening whole{attempt.run, attempt.round, attempt.attempt, attempt.epoch, attempt.base, plan};
  whole.plan.worker = {round::config_of(plan.worker, attempt.round, plan.rounds), {}};
  whole.scale_bits = attempt.scale_bits;
  whole.value_count = schema.value_count();
  whole.integer_count = schema.integer_count();
  return whole;
}

std::map<NodeId, wire::Opening> cut_openings(const wire::Opening& whole, const round::Gather& gather, round::Told& told,
                                             const std::set<NodeId>& children, const round::Told::Way& way) {
  std::map<NodeId, wire::Opening> openings;
  for (auto& [child, cut] : told.tell(children, gather.participants(), way)) {
    if (cut.empty()) continue;
    wire::Opening& opening = openings.emplace(child, whole).first->second;
    opening.counted.clear();
    opening.received.reset();  // what this node's own parent has of it
    for (const round::Participant& participant : cut.participants) {
      if (gather.is_counted(participant.site)) opening.counted.push_back(participant.site);
    }
    opening.participants = std::move(cut.participants);
    opening.gone = std::move(cut.gone);
  }
  return openings;
}

std::map<NodeId, wire::Commit> cut_commits(const wire::Commit& whole, const std::set<NodeId>& children,
                                           const Via& via) {
  std::map<NodeId, wire::Commit> commits;
  for (const NodeId child : children) {
    commits.emplace(
        child, wire::Commit{whole.run, whole.round, whole.attempt, whole.model, {}, {}, whole.last, {}, whole.order});
  }
  const auto of = [&](SiteId site) {
    const auto found = commits.find(via(site));
    return found == commits.end() ? nullptr : &found->second;
  };
  for (const auto& [site, entry] : whole.contributors.entries()) {
    wire::Commit* cut = of(site);
    if (cut == nullptr) continue;
    const Status added = cut->contributors.add({entry.site, entry.lease, entry.weight, entry.digest, 0, {}});
    FLUVIAL_CHECK(added.ok(), "a part of a contributor set");
  }
  for (const round::Refusal& refusal : whole.refusals) {
    if (wire::Commit* cut = of(refusal.site)) cut->refusals.push_back(refusal);
  }
  for (const SiteId site : whole.late) {
    if (wire::Commit* cut = of(site)) cut->late.push_back(site);
  }
  for (const auto& [site, outcome] : whole.outcomes) {
    if (wire::Commit* cut = of(site)) cut->outcomes.emplace(site, outcome);
  }
  return commits;
}

}  // namespace fluvial::transfer

#include "core/transfer/cut.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace fluvial::transfer {

wire::Opening opening_of(const round::AttemptRecord& attempt, const round::Plan& plan, const round::Schema& schema) {
  wire::Opening whole{attempt.run, attempt.round, attempt.attempt, attempt.epoch, attempt.base, plan};
  whole.scale_bits = attempt.scale_bits;
  whole.value_count = schema.value_count();
  whole.integer_count = schema.integer_count();
  return whole;
}

std::optional<wire::Opening> cut_opening(wire::Opening whole, const round::Gather& gather, round::Told& told,
                                         NodeId child, const round::Told::Way& way) {
  round::Told::Cut cut = told.tell(child, gather.participants(), way);
  if (cut.empty()) return std::nullopt;
  whole.counted.clear();
  whole.received.reset();                                // what this node's own parent has of it
  const std::vector<SiteId> counted = gather.counted();  // in order
  for (const round::Participant& participant : cut.participants) {
    if (std::binary_search(counted.begin(), counted.end(), participant.site)) whole.counted.push_back(participant.site);
  }
  whole.participants = std::move(cut.participants);
  whole.gone = std::move(cut.gone);
  return whole;
}

wire::Commit cut_commit(const wire::Commit& whole, NodeId child, const Via& via) {
  wire::Commit cut{whole.run, whole.round, whole.attempt, whole.model, {}, {}, whole.last, {}};
  for (const auto& [site, entry] : whole.contributors.entries()) {
    if (via(site) != child) continue;
    const Status added = cut.contributors.add({entry.site, entry.lease, entry.weight, entry.digest, 0, {}});
    FLUVIAL_CHECK(added.ok(), "a part of a contributor set");
  }
  for (const round::Refusal& refusal : whole.refusals) {
    if (via(refusal.site) == child) cut.refusals.push_back(refusal);
  }
  std::ranges::copy_if(whole.late, std::back_inserter(cut.late), [&](SiteId site) { return via(site) == child; });
  return cut;
}

}  // namespace fluvial::transfer

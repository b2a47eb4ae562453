#include "coordinator/service/roll_call.h"

#include <map>
#include <set>

namespace fluvial::coordinator {

struct RollCall::Places {
  explicit Places(const RunMachine& machine, TimePoint now)
      : attendance(machine.attendance()),
        overdue(machine.is_open() && now >= machine.soft_deadline() && !round::is_async(machine.plan())) {
    const round::Gather& gather = machine.gather();
    for (const SiteId site : gather.counted()) in.insert(site);
    for (const SiteId site : gather.awaited()) awaited.insert(site);
    for (const round::Refusal& refusal : gather.refusals()) refused.emplace(refusal.site, refusal.error);
    for (const auto& [site, refusal] : machine.refused_before()) refused.emplace(site, refusal.error);
    for (const round::Participant& one : machine.attempt().participants) {
      if (const auto pass = machine.missed_pass(one.site)) missed.emplace(one.site, *pass);
    }
    for (const SiteId site : in) refused.erase(site);  // shut out since: it counts
  }
  std::set<SiteId> in;
  std::set<SiteId> awaited;
  std::map<SiteId, Error> refused;
  std::map<SiteId, std::uint32_t> missed;  // which pass
  const round::Attendance& attendance;
  bool overdue;
};

std::vector<RollCall::Entry> RollCall::of(const RunMachine& machine) const {
  const Places places(machine, clock_.now());
  std::vector<Entry> entries;
  for (const round::Participant& participant : machine.attempt().participants) {
    entries.push_back({participant.site, why_not(places, participant.site)});
  }
  return entries;
}

std::vector<store::LateSite> RollCall::late(const RunMachine& machine, const std::vector<SiteId>& sites) const {
  const Places places(machine, clock_.now());
  std::vector<store::LateSite> late;
  for (const SiteId site : sites) late.push_back({site, why_not(places, site).reason});
  return late;
}

std::string RollCall::words(const RunMachine& machine, const std::vector<SiteId>& sites) const {
  const Places places(machine, clock_.now());
  std::vector<std::pair<std::string, std::string>> reasons;
  for (const SiteId site : sites) {
    reasons.emplace_back(registry_.book().name_of(site), why_not(places, site).reason);
  }
  return listed(reasons);
}

Stay RollCall::stay_of(NodeId node) const {
  const Federation::Stay stay = registry_.book().stay_of(node);
  return {stay.here, stay.came, wall(stay.since)};
}

std::optional<Activity> RollCall::activity_of(NodeId node) const {
  const Federation::Stay stay = registry_.book().stay_of(node);
  std::optional<Activity> activity = activity_of_ && stay.here ? activity_of_(node) : std::nullopt;
  // What it said before it went away is not what it does now.
  if (activity && clock_.now() - activity->heard_ago < stay.since) return std::nullopt;
  return activity;
}

Absence RollCall::outside(SiteId site) const {
  SiteKnown known = known_of(site);
  const bool could = known.stay.here && known.quarantine.empty() && known.ahead.empty() && !known.revoked;
  known.place = could ? Place::kIn : Place::kAwaited;
  return why(known, clock_.wall_now());
}

Absence RollCall::why_not(const Places& places, SiteId site) const {
  SiteKnown known = known_of(site);
  known.overdue = places.overdue;
  known.expected = places.attendance.of(site);
  if (const auto refused = places.refused.find(site); refused != places.refused.end()) {
    known.place = Place::kRefused;
    known.refusal = refused->second;
    known.declined = !round::drops_update(refused->second.code);
  } else if (places.in.contains(site)) {
    known.place = Place::kIn;
  } else if (const auto missed = places.missed.find(site); missed != places.missed.end()) {
    known.place = Place::kMissedPass;
    known.missed_pass = missed->second;
  } else {
    known.place = places.awaited.contains(site) ? Place::kAwaited : Place::kMissing;
  }
  return why(known, clock_.wall_now());
}

// But for the round.
SiteKnown RollCall::known_of(SiteId site) const {
  const Federation& book = registry_.book();
  SiteKnown known;
  if (const auto node = book.nodes().find(site); node != book.nodes().end()) {
    known.revoked = node->second.revoked_at.has_value();
    if (node->second.quarantined_at) known.quarantine = node->second.quarantine_reason;
  }
  if (const auto ahead = registry_.ahead().find(site); ahead != registry_.ahead().end()) known.ahead = ahead->second;
  known.stay = stay_of(site);
  known.activity = activity_of(site);
  if (const LeaseEntry* lease = book.lease_of(site);
      lease != nullptr && lease->parent != site && book.nodes().contains(lease->parent)) {
    known.parent = book.name_of(lease->parent);
    known.parent_stay = stay_of(lease->parent);
    known.parent_activity = activity_of(lease->parent);
  }
  return known;
}

}  // namespace fluvial::coordinator

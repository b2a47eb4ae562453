// Who is in the open round and why the others are not: what the book, the run's machine and the nodes' reports know of
// each participant, put before logic/absence.h. On the node's strand.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/logic/absence.h"
#include "coordinator/logic/run_machine.h"
#include "coordinator/service/registry.h"
#include "core/store/rows.h"

namespace fluvial::coordinator {

class RollCall {
 public:
  using ActivityOf = std::function<std::optional<Activity>(NodeId)>;  // as the node reported last; none: it does not

  RollCall(const Registry& registry, const Clock& clock) : registry_(registry), clock_(clock) {}
  void on_activity(ActivityOf activity_of) { activity_of_ = std::move(activity_of); }

  struct Entry {
    SiteId site;
    Absence absence;
  };
  // Every participant of the machine's attempt, by id.
  std::vector<Entry> of(const RunMachine& machine) const;
  std::vector<store::LateSite> late(const RunMachine& machine, const std::vector<SiteId>& sites) const;
  // "hospital-a: no worker attached; hospital-b: ..."; empty for nobody.
  std::string words(const RunMachine& machine, const std::vector<SiteId>& sites) const;

  // Outside a round. kIn: it could take part in one.
  Absence outside(SiteId site) const;
  Stay stay_of(NodeId node) const;
  std::optional<Activity> activity_of(NodeId node) const;
  WallTime wall(TimePoint then) const { return clock_.wall_now() - age(then); }

 private:
  struct Places;  // of the machine's participants
  SiteKnown known_of(SiteId site) const;
  Absence why_not(const Places& places, SiteId site) const;
  std::chrono::milliseconds age(TimePoint then) const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(clock_.now() - then);
  }

  const Registry& registry_;
  const Clock& clock_;
  ActivityOf activity_of_;
};

}  // namespace fluvial::coordinator

// What nodes said last of themselves (core/round/report.h): for people, and soft. On the node's strand.
#pragma once

#include <map>
#include <optional>
#include <utility>

#include "coordinator/logic/absence.h"
#include "core/round/report.h"

namespace fluvial::coordinator {

class Reports {
 public:
  // The node is a member below the child that brought it.
  void heard(round::NodeReport report) { last_[report.node] = std::move(report); }
  // With the time when it was heard, by our clock; of a node that is away, the last before it went. Null: none since
  // this process began, or the node is of a version without reports.
  const round::NodeReport* of(NodeId node) const {
    const auto found = last_.find(node);
    return found == last_.end() ? nullptr : &found->second;
  }
  // The same as logic/absence.h wants it.
  std::optional<Activity> activity_of(NodeId node, const Clock& clock) const;

 private:
  std::map<NodeId, round::NodeReport> last_;
};

}  // namespace fluvial::coordinator

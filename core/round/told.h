// Which sites of the open round a node has named to which child. A site may move to another child before the round is
// over. Then the child that it left hears that the site is gone, and gives up what it holds of that site. Pure.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <vector>

#include "core/round/contribution.h"

namespace fluvial::round {

class Told {
 public:
  struct Cut {
    std::vector<Participant> participants;  // below the child
    std::vector<SiteId> gone;               // named to the child before; elsewhere or under another lease now
    bool empty() const { return participants.empty() && gone.empty(); }
  };
  // The child that leads to a participant; 0 while that is unknown.
  using Way = std::function<NodeId(const Participant&)>;

  // What to tell each of these children, remembered as told; a child that the result does not name has nothing to hear.
  // A site whose way is unknown stays with the child that it was named to. Visits each participant once, however many
  // children there are.
  std::map<NodeId, Cut> tell(const std::set<NodeId>& children, const std::vector<Participant>& participants,
                             const Way& way);
  // The children to which one of these sites was named, and which have not heard that it is gone.
  std::vector<NodeId> children_of(const std::vector<SiteId>& sites) const;
  void clear() { told_.clear(); }  // another round

 private:
  std::map<SiteId, std::map<NodeId, Epoch>> told_;
};

}  // namespace fluvial::round

// Which child a node has told of which sites in the open round. A site may come by another way before the round is
// over: then the child that it came by hears that it is gone, and gives up what it holds of it. Pure.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "core/round/contribution.h"

namespace fluvial::round {

class Told {
 public:
  struct Cut {
    std::vector<Participant> participants;  // below the child
    std::vector<SiteId> gone;               // told before, and elsewhere or under another lease now
    bool empty() const { return participants.empty() && gone.empty(); }
  };
  // The child that leads to a participant; 0 when that is not known now.
  using Way = std::function<NodeId(const Participant&)>;

  // What to tell the child, and notes that it has been told. A site without a known way stays with whom it was told to.
  Cut tell(NodeId child, const std::vector<Participant>& participants, const Way& way);
  // Children that have been told of one of the sites and not that it is gone.
  std::vector<NodeId> children_of(const std::vector<SiteId>& sites) const;
  void clear() { told_.clear(); }  // another round

 private:
  std::map<NodeId, std::map<SiteId, Epoch>> told_;
};

}  // namespace fluvial::round

// Which child a node has told of which sites in the open round. A site may come by another way before the round is
// over: then the child that it came by hears that it is gone, and gives up what it holds of it. Pure.
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
    std::vector<SiteId> gone;               // told before, and elsewhere or under another lease now
    bool empty() const { return participants.empty() && gone.empty(); }
  };
  // The child that leads to a participant; 0 when that is not known now.
  using Way = std::function<NodeId(const Participant&)>;

  // What to tell each of these children, and notes that they have been told. A site without a known way stays with whom
  // it was told to. One look at each participant, however many children there are; who is not named is told nothing.
  std::map<NodeId, Cut> tell(const std::set<NodeId>& children, const std::vector<Participant>& participants,
                             const Way& way);
  // Children that have been told of one of the sites and not that it is gone.
  std::vector<NodeId> children_of(const std::vector<SiteId>& sites) const;
  void clear() { told_.clear(); }  // another round

 private:
  std::map<SiteId, std::map<NodeId, Epoch>> told_;
};

}  // namespace fluvial::round

// The models of sites that share a process: one of them fetches a model, and those that want the same one take its copy
// instead of another, so that many sites cost the memory and the transfer of one. Who fetches checks the digest; each
// site holds the copy as its own, and it goes with the last of them. Only sites below one parent share: the digest is
// over the values, and the names and shapes beside them are the parent's word. On the strand of the process.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>

#include "core/round/history.h"
#include "core/round/record.h"
#include "edge/service/trained.h"

namespace fluvial::edge {

class CommonModels {
 public:
  using Site = const void*;  // whichever address is the site's alone
  struct Which {
    round::HistoryId history;  // the run's numbers are of
    round::ModelRef ref;
    NodeId parent;  // whose word the schema is
    bool operator==(const Which&) const = default;
  };
  struct Wish {
    std::function<bool()> can_fetch;                               // the site has a parent
    std::function<void()> fetch;                                   // the site is to fetch it, and to call fetched()
    std::function<void(HeldModel)> here;                           // or it is here: called once, instead
    std::function<std::optional<round::ModelRef>()> flowing = {};  // what comes to this site just now
  };

  // In place of what the site wanted before. The same again has whoever fetches it asked once more.
  void want(Site site, const Which& which, Wish wish);
  // Of a site that waits for what another fetches: that it comes. None: it does not, or the site fetches itself.
  std::optional<round::ModelRef> flowing(Site site) const;
  void forget(Site site);        // it wants nothing any more
  void cannot_fetch(Site site);  // its parent is gone, or sent something else: another one's turn, if there is one
  // It has a parent, perhaps another than before: then it shares with the sites of that one.
  void can_fetch(Site site, NodeId parent);
  // A site has fetched it: all who want it have it. To be held instead of `model`: the copy that is here already, if
  // there is one.
  HeldModel fetched(Site site, const Which& which, HeldModel model);

 private:
  struct Flight {
    Which which;
    std::map<Site, Wish> wishes;
    Site fetcher = nullptr;
  };
  struct Copy {
    Which which;
    round::Schema schema;
    std::weak_ptr<const local::SharedModel> bytes;
  };
  using Flights = std::list<Flight>;
  Flights::iterator flight_of(Site site);
  std::optional<HeldModel> copy_of(const Which& which) const;
  void take_turn(Flight& flight, Site but_not);

  Flights flights_;
  std::list<Copy> copies_;
};

}  // namespace fluvial::edge

// What must hold of each site's work, unweighted and to the rounding of fp32: the sum of its decoded committed updates,
// its residual and what was dropped (and counted as dropped) is the sum of the updates that it trained. And a site
// never believes an outcome that the journal does not hold.
//
// The state is read from the site's store after each of its transitions and each of its starts; of a transition that a
// crash cut off, both outcomes are right, and the store says which it was.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/store/site_store.h"
#include "simulator/checks/report.h"
#include "simulator/checks/rounds.h"
#include "simulator/checks/truth.h"

namespace fluvial::simulator {

class SiteChecks {
 public:
  SiteChecks(Report report, Truth& truth, const RoundChecks& rounds)
      : report_(std::move(report)), truth_(truth), rounds_(rounds) {}

  // Before the store is asked: an update (base - model) is about to become a submission, or the residual. A `wicked`
  // site's books are not looked at.
  void encoding(SiteId site, RunId run, RoundId round, std::vector<float> update, bool wicked);
  void resolving(SiteId site, RunId run, RoundId round, const Digest& digest, store::Outcome outcome);
  void dropped(SiteId site, RunId run);     // the residual, by the plan's bounds
  void forgetting(SiteId site, RunId run);  // the run is over; what is unspent is reported
  // After each start, and when a transition has ended, well or not: what the store says is compared with what it must.
  void settled(SiteId site, store::SiteStore& store);

 private:
  struct Pending {
    RoundId round;
    Digest digest{};
    std::vector<double> p;
  };
  struct Resolving {
    RoundId round;
    Digest digest{};
    store::Outcome outcome = store::Outcome::kPending;
  };
  struct Book {
    std::vector<double> trained;    // the sum of the updates that went into p
    std::vector<double> committed;  // decoded, of those that it resolved as counted
    std::vector<double> dropped;
    std::vector<double> residual;  // as last read
    std::optional<Pending> pending;
    std::optional<std::pair<RoundId, std::vector<float>>> update;  // about to go in
    std::optional<Resolving> resolving;
    bool may_have_dropped = false;
    bool forgotten = false;
    bool wicked = false;
    double slack = 0;  // of rounding, so far
  };
  struct Seen {  // in the store
    std::optional<Pending> pending;
    std::vector<double> residual;
    std::optional<store::LastOutcome> last;
  };
  std::optional<Seen> look(SiteId site, RunId run, store::SiteStore& store);
  void follow(SiteId site, RunId run, Book& book, const Seen& seen);
  void resolved(Book& book, SiteId site, RunId run, const Resolving& resolving, const Seen& seen);
  void compare(SiteId site, RunId run, Book& book, const Seen& seen);

  Report report_;
  Truth& truth_;
  const RoundChecks& rounds_;
  std::map<std::pair<SiteId, RunId>, Book> books_;
};

}  // namespace fluvial::simulator

// Where a process could be wrong. `fluvial simulate` has this class alone, which does what is right; a test-only binary
// derives from it, to prove that the checks see each of these (tests/simulator/bugs).
#pragma once

#include <map>
#include <vector>

#include "coordinator/logic/run_machine.h"
#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/store/journal.h"
#include "core/transfer/incoming.h"
#include "edge/logic/site_machine.h"
#include "simulator/world/host.h"

namespace fluvial::simulator {

class Tamper {
 public:
  virtual ~Tamper() = default;

  // ---- a site
  // An acknowledgement means only "stop resending for now".
  virtual bool counts_on_ack() { return false; }
  // What a commit says of the site is what it goes by; one that does not name it says nothing: it asks.
  virtual void told(edge::Verdict*) {}
  // So is what the coordinator answers.
  virtual void told(round::Outcome*) {}
  // What it writes is synced before it counts as written.
  virtual store::FileSystem& site_files(HostId, store::FileSystem& honest) { return honest; }

  // ---- a parent
  // What is under another lease, attempt or epoch is refused.
  virtual bool admits_stale() { return false; }
  // What overlaps with what it holds is refused.
  virtual bool merges_overlap() { return false; }
  // What is beyond the plan's bounds is refused.
  virtual void terms(transfer::Terms*) {}
  // What is added to the sum is what came.
  virtual void staged(transfer::StagedArrival*) {}

  // ---- the coordinator
  // A site that contradicted itself takes part no more.
  virtual bool forgets_quarantine() { return false; }
  // A site whose certificate is revoked is none.
  virtual bool forgets_revocation() { return false; }
  // What is answered is what the journal says.
  virtual void answers(round::Outcome*) {}
  // Who is called into a round in another's place: nobody for whose weight the sum has no room.
  virtual void calls(const std::map<SiteId, coordinator::SiteInfo>&, std::vector<round::Participant>*) {}
  // Each start is a term of its own.
  virtual Result<Epoch> term(store::CoordinatorJournal& journal) { return journal.next_epoch(); }
  // The optimizer's state is what the last commit refers to.
  virtual void optimizer_finalised(const std::vector<float>&) {}
  virtual void optimizer_loaded(std::vector<float>*) {}
};

}  // namespace fluvial::simulator

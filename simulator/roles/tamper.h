// Where a process could be wrong. `fluvial simulate` has this class alone, which does what is right; a test-only binary
// derives from it, to prove that the checks see each of these (tests/simulator/bugs).
#pragma once

#include <vector>

#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/store/journal.h"
#include "edge/logic/site_machine.h"
#include "simulator/world/host.h"

namespace fluvial::simulator {

class Tamper {
 public:
  virtual ~Tamper() = default;

  // ---- a site
  // An acknowledgement means only "stop resending for now".
  virtual bool counts_on_ack() { return false; }
  // A commit that does not name the site says nothing: it asks.
  virtual void missed(edge::Verdict*) {}
  // What it writes is synced before it counts as written.
  virtual store::FileSystem& site_files(HostId, store::FileSystem& honest) { return honest; }

  // ---- a parent
  // What is under another lease, attempt or epoch is refused.
  virtual bool admits_stale() { return false; }
  // What overlaps with what it holds is refused.
  virtual bool merges_overlap() { return false; }

  // ---- the coordinator
  // A site that contradicted itself takes part no more.
  virtual bool forgets_quarantine() { return false; }
  // Each start is a term of its own.
  virtual Result<Epoch> term(store::CoordinatorJournal& journal) { return journal.next_epoch(); }
  // The optimizer's state is what the last commit refers to.
  virtual void optimizer_finalised(const std::vector<float>&) {}
  virtual void optimizer_loaded(std::vector<float>*) {}
};

}  // namespace fluvial::simulator

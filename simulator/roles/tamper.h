// The places where a process could be wrong. `fluvial simulate` uses this class itself, which does what is right. A
// test-only binary derives from it, to prove that the checks see each of these bugs (tests/simulator/bugs).
#pragma once

#include <map>
#include <vector>

#include "coordinator/logic/run_machine.h"
#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/round/report.h"
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
  // The site follows a commit's verdict on it; if the commit does not name the site, the site asks.
  virtual void told(edge::Verdict*) {}
  // The site follows the coordinator's answer.
  virtual void told(round::Outcome*) {}
  // The site's writes are synced before they count as written.
  virtual store::FileSystem& site_files(HostId, store::FileSystem& honest) { return honest; }

  // A child knows its parent by role, node, name and key.
  virtual bool checks_role_alone() { return false; }

  // A site does what the coordinator signed.
  virtual bool trusts_unsigned() { return false; }

  // A member asks for its next certificate before the one that it has ends.
  virtual bool renews_too_late() { return false; }

  // ---- a parent
  // A parent ends the session of a child whose certificate has ended, and lets nobody in with such a one.
  virtual bool takes_an_ended_certificate() { return false; }
  // A parent takes a child in under a lease that the coordinator gave it.
  virtual bool takes_any_lease() { return false; }
  // A parent refuses a certificate that was revoked or replaced, also after its member has enrolled anew.
  virtual bool accepts_revoked_serial() { return false; }
  // A parent refuses what is under another lease, attempt or epoch.
  virtual bool admits_stale() { return false; }
  // A parent refuses what overlaps with what it holds.
  virtual bool merges_overlap() { return false; }
  // A parent refuses what is beyond the plan's bounds.
  virtual void terms(transfer::Terms*) {}
  // A parent adds to the sum exactly what came.
  virtual void staged(transfer::StagedArrival*) {}

  // ---- the coordinator
  // The authority before is trusted until nobody relies on it.
  virtual bool ends_the_overlap_too_early() { return false; }
  // And not for longer.
  virtual bool trusts_the_old_authority() { return false; }
  // A renewed certificate replaces the one before only when its holder comes with it.
  virtual bool supersedes_on_issue() { return false; }
  // A contribution counts as its site signed it.
  virtual bool takes_any_contribution() { return false; }
  // A site that contradicted itself takes part no more.
  virtual bool forgets_quarantine() { return false; }
  // A site whose certificate is revoked is no member.
  virtual bool forgets_revocation() { return false; }
  // The coordinator knows clocks as exactly as they were measured, and no better.
  virtual void reported(round::NodeReport*) {}
  // The coordinator answers what the journal says.
  virtual void answers(round::Outcome*) {}
  // The coordinator calls no substitute into a round for whose weight the sum has no room.
  virtual void calls(const std::map<SiteId, coordinator::SiteInfo>&, std::vector<round::Participant>*) {}
  // Each start is a term of its own.
  virtual Result<Epoch> term(store::CoordinatorJournal& journal) { return journal.next_epoch(); }
  // The optimizer's state is what the last commit refers to.
  virtual void optimizer_finalised(const std::vector<float>&) {}
  virtual void optimizer_loaded(std::vector<float>*) {}
};

}  // namespace fluvial::simulator

// Committed rounds audited from the journal alone: that each contribution is as its site signed it, by a key that the
// site was certified with; that it counts in one of them; that the weights add up; and that the coordinator signed this
// commit and no other. Of a round with several passes the mean that a contribution was made from is signed with it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/identity/signature.h"
#include "core/store/journal.h"

namespace fluvial::coordinator {

struct AuditedRound {
  RoundId round;
  std::uint64_t contributors = 0;
  std::uint64_t contributors_signed = 0;  // the others are of sites of a version that signs nothing
  bool contributions_checked = true;      // false: a round before, on whose model one of them builds, is pruned
  bool commit_signed = false;             // else: by a coordinator of a version that signs nothing
  std::vector<std::string> faults;        // for people; empty: what is signed holds
};

struct AuditedRounds {
  RunId run;
  RoundId from;
  std::uint64_t limit = 0;
};

// Those that the journal holds, ascending. `coordinator`: whose signature commits bear. Blocking.
Result<std::vector<AuditedRound>> audit_rounds(store::CoordinatorJournal& journal,
                                               const identity::PublicKey& coordinator, const AuditedRounds& which);

}  // namespace fluvial::coordinator

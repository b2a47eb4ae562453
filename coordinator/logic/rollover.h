// From one certificate authority to another while the federation goes on: what may be done when, and who stands in the
// way. Pure: the members and their certificates go in.
//
//   begin   members are told of the next authority, which issues nothing yet; they trust both
//   issue   the next one issues; both are trusted, so what the other one issued is good until it ends or is renewed
//   end     the other one is trusted no more
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/clock.h"
#include "core/base/ids.h"
#include "core/base/result.h"

namespace fluvial::coordinator {

enum class RolloverPhase {
  kNone,
  kBegun,    // there is a next one
  kIssuing,  // it issues, and the one before is still trusted
};
RolloverPhase rollover_phase(bool has_next, bool has_old);
std::string_view phase_name(RolloverPhase phase);  // "none", "begun", "issuing"

struct TrustingMember {
  std::string name;
  std::uint64_t trust = 0;  // the number of the list of authorities that it came with last
  bool listed = true;       // neither revoked nor removed, and a member of the tree
};
// The names of those that do not trust the list with this number yet.
std::vector<std::string> without_list(const std::vector<TrustingMember>& members, std::uint64_t number);

struct HeldCertificate {
  NodeId node;
  std::string name;      // of the member
  bool leaving = false;  // of the authority that is to be dropped
  bool used = false;     // its holder has shown it
  bool refused = false;
  WallTime ends_at;
};
// The names of members that could not prove who they are without the authority that is to be dropped: they hold a
// certificate of it that has not ended, and have shown none of another one.
std::vector<std::string> relying_on_leaving(const std::vector<HeldCertificate>& certificates, WallTime now);

// kFailedPrecondition says in which phase the rollover is, who stands in the way, and what to do.
Status may_begin(RolloverPhase phase);
Status may_undo(RolloverPhase phase);
Status may_issue(RolloverPhase phase, const std::vector<std::string>& without, bool force);
Status may_end(RolloverPhase phase, const std::vector<std::string>& relying, bool force);

}  // namespace fluvial::coordinator

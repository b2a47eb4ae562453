// Who is under whom by the coordinator's word: what a child compares its parent with, and a parent its child. Pure:
// whose word it is has been verified before (core/tree/lease_statement.h).
#pragma once

#include <map>
#include <string>

#include "core/base/bytes.h"
#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/round/history.h"

namespace fluvial::round {

// Under which parent a member is. Keys by their SHA-256; zeros: not known to the coordinator.
struct LeaseTerms {
  NodeId node;
  Digest key{};
  Epoch epoch;
  NodeId parent;  // 0: the coordinator
  Digest parent_key{};
  HistoryId history;
  bool operator==(const LeaseTerms&) const = default;
};

// At the parent: kPermissionDenied unless `lease` is for this child, with this key, under this parent; kStale unless it
// is of the epoch and the history that the child names.
Status check_lease(const LeaseTerms& lease, const LeaseTerms& wanted);

// One end of a session, as its certificate says.
struct Party {
  Role role = Role::kSite;
  NodeId node;
  std::string name;
  Digest key{};  // zeros: not known
};

// At the child: kUnauthenticated, saying who was expected and who answered, unless it is the same role, node, name and,
// where it is known, key. The coordinator is known by its role and its key alone.
Status check_party(const Party& expected, const Party& answered);

// The newest lease of each child that was ever shown. Grows by children with a lease, so only with the federation.
class NewestLeases {
 public:
  Status check(NodeId child, Epoch lease) const;  // kStale: a newer one was shown before
  void note(NodeId child, Epoch lease);

 private:
  std::map<NodeId, Epoch> newest_;
};

}  // namespace fluvial::round

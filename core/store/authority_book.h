// The federation's authorities, as the coordinator's journal keeps them: who issues, who is trusted, who was; and which
// member trusts which list of them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/clock.h"
#include "core/base/ids.h"
#include "core/base/result.h"

namespace fluvial::store {

class CoordinatorJournal;

enum class AuthorityState {
  kNext,     // trusted, and issues nothing yet
  kIssuing,  // one of them
  kOld,      // trusted, and issues nothing any more
  kRenewed,  // its key issues nothing any more, another one of the same root does
  kGone,     // not trusted any more
};

struct AuthorityRow {
  Digest key{};       // SHA-256 of the issuing key's SubjectPublicKeyInfo
  std::string chain;  // PEM: the issuing certificate first, the one that members trust last
  AuthorityState state = AuthorityState::kIssuing;
  WallTime since;  // of the state
  bool operator==(const AuthorityRow&) const = default;
};

// A facet of the journal: thread safe and blocking as that is, each change one durable transaction.
class AuthorityBook {
 public:
  explicit AuthorityBook(CoordinatorJournal& journal) : journal_(journal) {}

  Result<std::vector<AuthorityRow>> all();  // the federation's first one first; empty: this version has not run it yet
  Result<std::uint64_t> trust();            // the number of the list of those that are trusted
  // Writes these rows, over those with the same keys. `changed`: the list of those that are trusted changes now and
  // gets another number: a greater one, which no history that a restore has lost can have given.
  Status put(const std::vector<AuthorityRow>& rows, std::optional<WallTime> changed);

  // A member came with this list. Writes nothing when it came with it before.
  Status shown(NodeId node, std::uint64_t trust);
  Result<std::map<NodeId, std::uint64_t>> shown();  // of every member

 private:
  CoordinatorJournal& journal_;
};

}  // namespace fluvial::store

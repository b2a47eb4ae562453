// What the audit log says of an act: what was done, by whom, from where, and to whom or what.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/base/ids.h"
#include "core/base/result.h"

namespace fluvial::store {

enum class AuditKind {
  kStarted,
  kStopped,
  kRestored,
  kEnrolled,
  kEnrolmentRefused,
  kRenewed,
  kRenewalRefused,
  kAdopted,
  kAdmitted,
  kHeldTwice,
  kRevoked,
  kRemoved,
  kQuarantined,
  kQuarantineLifted,
  kTokenMade,
  kTokenRevoked,
  kRunStarted,
  kRunPaused,
  kRunResumed,
  kRunStopped,
  kRunFinished,
  kBackedUp,
  kPruned,
  kRolloverBegun,
  kRolloverUndone,
  kRolloverIssues,
  kRolloverEnded,
  kAuthorityTaken,
  kModelLabelled,
  kModelUnlabelled,
  kModelRead,
};

struct AuditKindInfo {
  AuditKind kind;
  std::string_view name;     // as entries and `fluvial audit show --kind` have it
  std::string_view meaning;  // the table in docs/operations/audit.md
};
std::span<const AuditKindInfo> audit_kinds();
std::string_view audit_kind_name(AuditKind kind);

enum class AuditBy {
  kCoordinator,  // nobody told it to
  kUser,         // of the coordinator's machine: `user` says which
  kNewcomer,     // whoever came with a token, or with none that is good
  kMember,       // whoever came with a certificate
  kOperator,     // over the network: `person` says who
};

// A process on the coordinator's machine, as the kernel says.
struct AuditUser {
  std::uint32_t uid = 0;
  std::int32_t pid = 0;
  std::string name;  // empty: the machine has none for this number
  bool operator==(const AuditUser&) const = default;
};

// Whoever came to the admin API over the network, as their certificate says.
struct AuditOperator {
  std::string name;
  NodeId node;
  std::string serial;
  bool operator==(const AuditOperator&) const = default;
};

// What is empty, 0 or none is not written.
struct AuditEntry {
  AuditKind kind = AuditKind::kStarted;
  AuditBy by = AuditBy::kCoordinator;
  std::optional<AuditUser> user = {};
  std::optional<AuditOperator> person = {};
  std::string from = {};  // the address, or "unix"
  std::string member = {};
  NodeId node = {};
  std::optional<Role> role = {};
  std::string serial = {};  // of a certificate
  std::string token = {};   // its id
  RunId run = {};
  std::string detail = {};  // a reason, a plan: for people
  bool operator==(const AuditEntry&) const = default;
};

// One JSON object, its keys in a fixed order: the chain is over this text.
std::string audit_text(const AuditEntry& entry);

}  // namespace fluvial::store

#include "core/store/audit_entry.h"

#include <array>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include "core/base/check.h"
#include "core/store/json.h"

namespace fluvial::store {
namespace {

namespace json = boost::json;

constexpr std::array kKinds = {
    AuditKindInfo{AuditKind::kStarted, "coordinator-started", "the coordinator's process began, and by which user"},
    AuditKindInfo{AuditKind::kStopped, "coordinator-stopped", "it ended as it was told to; a crash leaves no entry"},
    AuditKindInfo{AuditKind::kRestored, "restored", "a backup was put back: entries after it are lost"},
    AuditKindInfo{AuditKind::kEnrolled, "enrolled", "a member got a certificate for a token"},
    AuditKindInfo{AuditKind::kEnrolmentRefused, "enrolment-refused",
                  "somebody asked for a certificate and got none; a flood is counted, not listed"},
    AuditKindInfo{AuditKind::kRenewed, "renewed", "a member got a certificate for longer, of the same key"},
    AuditKindInfo{AuditKind::kRenewalRefused, "renewal-refused",
                  "somebody asked for one and got none; a flood is counted, not listed"},
    AuditKindInfo{AuditKind::kAdopted, "adopted",
                  "after a restore: a certificate that was issued after the backup was taken over, with its key"},
    AuditKindInfo{AuditKind::kAdmitted, "admitted",
                  "a member was given a lease, or an operator answered, and its process, key or address is new"},
    AuditKindInfo{AuditKind::kHeldTwice, "identity-held-twice",
                  "two machines show the identity of one member: a copied folder, or a stolen key"},
    AuditKindInfo{AuditKind::kRevoked, "revoked", "a member was shut out"},
    AuditKindInfo{AuditKind::kRemoved, "removed", "a member was shut out and taken off the list"},
    AuditKindInfo{AuditKind::kQuarantined, "quarantined", "a site contradicted itself and takes part in no round"},
    AuditKindInfo{AuditKind::kQuarantineLifted, "quarantine-lifted", "it may take part again"},
    AuditKindInfo{AuditKind::kTokenMade, "token-made", "an invitation was made"},
    AuditKindInfo{AuditKind::kTokenRevoked, "token-revoked", "an invitation was taken back"},
    AuditKindInfo{AuditKind::kRunStarted, "run-started", "a run began; the detail is its plan's name and SHA-256"},
    AuditKindInfo{AuditKind::kRunPaused, "run-paused", "by a user, or by the coordinator itself for the reason given"},
    AuditKindInfo{AuditKind::kRunResumed, "run-resumed", "a paused run goes on"},
    AuditKindInfo{AuditKind::kRunStopped, "run-stopped", "a run was ended before its last round"},
    AuditKindInfo{AuditKind::kRunFinished, "run-finished", "a run committed its last round"},
    AuditKindInfo{AuditKind::kBackedUp, "backed-up", "a backup was made while the coordinator ran"},
    AuditKindInfo{AuditKind::kPruned, "audit-pruned", "entries older than keep_audit_days were deleted"},
    AuditKindInfo{AuditKind::kRolloverBegun, "rollover-begun", "members are told of the next certificate authority"},
    AuditKindInfo{AuditKind::kRolloverUndone, "rollover-undone", "the next authority was taken back before it issued"},
    AuditKindInfo{AuditKind::kRolloverIssues, "rollover-issues", "the next authority issues from then on"},
    AuditKindInfo{AuditKind::kRolloverEnded, "rollover-ended", "the authority before is trusted no more"},
    AuditKindInfo{AuditKind::kAuthorityTaken, "authority-taken",
                  "the certificate that issues was taken from the files of the settings"},
    AuditKindInfo{AuditKind::kModelLabelled, "model-labelled",
                  "a model got a label, and stays; the detail is the label and its round"},
    AuditKindInfo{AuditKind::kModelUnlabelled, "model-unlabelled", "a label was taken away; the detail is the label"},
    AuditKindInfo{AuditKind::kModelRead, "model-read",
                  "a committed model was read over the admin API, to be kept elsewhere"},
};

std::string_view by_name(AuditBy by) {
  switch (by) {
    case AuditBy::kCoordinator: return "coordinator";
    case AuditBy::kUser: return "user";
    case AuditBy::kNewcomer: return "newcomer";
    case AuditBy::kMember: return "member";
    case AuditBy::kOperator: return "operator";
  }
  return "unknown";
}

void put(json::object& object, const char* key, std::string_view text) {
  if (!text.empty()) object[key] = view(text);
}

}  // namespace

std::span<const AuditKindInfo> audit_kinds() { return kKinds; }

std::string_view audit_kind_name(AuditKind kind) {
  const auto index = static_cast<std::size_t>(kind);
  FLUVIAL_CHECK(index < kKinds.size() && kKinds[index].kind == kind, "the table has every kind, in order");
  return kKinds[index].name;
}

std::string audit_text(const AuditEntry& entry) {
  json::object object;
  put(object, "kind", audit_kind_name(entry.kind));
  put(object, "by", by_name(entry.by));
  if (entry.user) {
    object["uid"] = entry.user->uid;
    object["pid"] = entry.user->pid;
    put(object, "user", entry.user->name);
  }
  if (entry.person) {
    put(object, "operator", entry.person->name);
    object["operator_node"] = entry.person->node.value();
    put(object, "operator_serial", entry.person->serial);
  }
  put(object, "from", entry.from);
  put(object, "member", entry.member);
  if (entry.node != NodeId()) object["node"] = entry.node.value();
  if (entry.role) put(object, "role", role_name(*entry.role));
  put(object, "serial", entry.serial);
  put(object, "token", entry.token);
  if (entry.run != RunId()) object["run"] = entry.run.value();
  put(object, "detail", entry.detail);
  return json::serialize(object);
}

}  // namespace fluvial::store

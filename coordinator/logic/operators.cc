#include "coordinator/logic/operators.h"

#include <algorithm>
#include <utility>

namespace fluvial::coordinator {

std::string_view access_name(Access access) {
  switch (access) {
    case Access::kNone: return "none";
    case Access::kRead: return "read";
    case Access::kFull: return "full";
  }
  return "unknown";
}

Result<Access> access_from_name(std::string_view name) {
  for (const Access access : {Access::kRead, Access::kFull}) {
    if (access_name(access) == name) return access;
  }
  return Error{Code::kInvalidArgument, "access = '" + std::string(name) + "': expected read or full"};
}

void Operators::put(OperatorEntry entry) {
  const NodeId node = entry.node;
  operators_.insert_or_assign(node, std::move(entry));
}

void Operators::revoked(NodeId node, WallTime when) {
  const auto found = operators_.find(node);
  if (found == operators_.end() || found->second.revoked_at) return;
  found->second.revoked_at = when;
}

void Operators::removed(NodeId node, WallTime when) {
  revoked(node, when);
  const auto found = operators_.find(node);
  if (found != operators_.end()) found->second.removed_at = when;
}

void Operators::renewed(NodeId node, std::string serial, WallTime ends_at) {
  const auto found = operators_.find(node);
  if (found == operators_.end()) return;
  found->second.certificate_serial = std::move(serial);
  found->second.certificate_ends_at = ends_at;
}

void Operators::seen(NodeId node, const std::string& serial, WallTime ends_at, WallTime when) {
  const auto found = operators_.find(node);
  if (found == operators_.end()) return;
  found->second.seen_at = when;
  if (found->second.certificate_serial == serial) found->second.certificate_ends_at = ends_at;
}

const OperatorEntry* Operators::find(NodeId node) const {
  const auto found = operators_.find(node);
  return found == operators_.end() ? nullptr : &found->second;
}

const OperatorEntry* Operators::named(std::string_view name) const {
  const auto found = std::ranges::find_if(operators_, [name](const auto& entry) { return entry.second.name == name; });
  return found == operators_.end() ? nullptr : &found->second;
}

Result<Access> Operators::access_of(NodeId node, std::string_view name) const {
  const OperatorEntry* const entry = find(node);
  if (entry == nullptr || entry->name != name) {
    return Error{Code::kPermissionDenied, "this federation has no operator " + std::string(name) +
                                              ": ask for a token (fluvial token create --role operator) and enrol"};
  }
  if (entry->revoked_at) {
    return Error{Code::kPermissionDenied,
                 "operator " + std::string(name) + " is revoked: a new token and another key would be needed"};
  }
  return entry->access;
}

}  // namespace fluvial::coordinator

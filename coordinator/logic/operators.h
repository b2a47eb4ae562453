// The people who may use the admin API over the network: as the journal has them. They are no members of the tree: no
// round, no lease and no listing of members knows them. Pure; not thread safe: on its owner's strand.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/clock.h"
#include "core/base/ids.h"
#include "core/base/result.h"

namespace fluvial::coordinator {

enum class Access {
  kNone,
  kRead,  // to look, and to change nothing
  kFull,
};
std::string_view access_name(Access access);             // "none", "read", "full"
Result<Access> access_from_name(std::string_view name);  // "read" or "full"

struct OperatorEntry {
  NodeId node;
  std::string name;
  Access access = Access::kNone;
  WallTime enrolled_at;
  std::string certificate_serial;  // of the newest
  std::optional<WallTime> revoked_at = {};
  std::optional<WallTime> removed_at = {};
  std::optional<WallTime> certificate_ends_at = {};  // of the newest; unknown until it is seen or renewed
  std::optional<WallTime> seen_at = {};              // since the coordinator started
  bool operator==(const OperatorEntry&) const = default;
};

class Operators {
 public:
  void put(OperatorEntry entry);
  void revoked(NodeId node, WallTime when);
  void removed(NodeId node, WallTime when);
  void renewed(NodeId node, std::string serial, WallTime ends_at);
  void seen(NodeId node, const std::string& serial, WallTime ends_at, WallTime when);

  const std::map<NodeId, OperatorEntry>& all() const { return operators_; }
  const OperatorEntry* find(NodeId node) const;
  const OperatorEntry* named(std::string_view name) const;
  // What the holder of a certificate for this operator may do. kPermissionDenied: the federation has no such operator,
  // or no longer; says what would change that.
  Result<Access> access_of(NodeId node, std::string_view name) const;

 private:
  std::map<NodeId, OperatorEntry> operators_;
};

}  // namespace fluvial::coordinator

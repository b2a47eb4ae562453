// Members' rows and counters, within a transaction. Inside this room only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/store/rows.h"
#include "core/store/sqlite.h"

namespace fluvial::store {

Result<Role> role_from_name(std::string_view name);  // kDataLoss
// The next value of a counter: 1, 2, ...
Result<std::uint64_t> bump(Database& database, std::string_view counter);
// The id that a node of this role and name has, or has from now on. kAlreadyExists: the name is of another role.
Result<NodeId> reserve(Database& database, Role role, const std::string& name);
Result<std::optional<NodeRow>> node_by_id(Database& database, NodeId id);

}  // namespace fluvial::store

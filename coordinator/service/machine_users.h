// The users and groups of this machine, as its name service knows them. Blocking.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/result.h"
#include "core/store/audit_entry.h"

namespace fluvial::coordinator {

std::string user_name(std::uint32_t uid);                 // empty: it has no name
Result<std::uint32_t> user_id(const std::string& name);   // or a number; kNotFound, kUnavailable
Result<std::uint32_t> group_id(const std::string& name);  // likewise
store::AuditUser own_user();                              // this process

}  // namespace fluvial::coordinator

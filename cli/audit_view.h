// Entries of the audit log as a person reads them. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/json.h"
#include "core/store/audit_log.h"

namespace fluvial::cli {

struct AuditLine {
  store::AuditRow row;
  std::string kind;   // "pruned" for the row that a pruned log begins with
  json::value entry;  // null where it is not JSON
  std::string text(std::string_view key, std::string_view otherwise = "") const;
};
AuditLine audit_line_of(const store::AuditRow& row);
Result<store::AuditRow> audit_row_of(const json::value& entry);  // of /v1/audit; kDataLoss

struct AuditFilter {
  std::vector<std::string> kinds;  // empty: all
  std::string member;              // empty: all
  std::optional<WallTime> since;
};
bool is_shown(const AuditFilter& filter, const AuditLine& line);

// "12h" before `now`, or a time as 2026-01-31T12:00:00Z. kInvalidArgument.
Result<WallTime> audit_since(const std::string& text, WallTime now);

std::string audit_time(WallTime at);            // 2026-01-31T12:00:00.123Z
std::string audit_by(const AuditLine& line);    // "alice (uid 1001, pid 77)", "coordinator", "newcomer"
std::string audit_what(const AuditLine& line);  // "site hospital-a", "run 3", "token 3f9c2a71b0de"
json::object audit_object(const AuditLine& line);

}  // namespace fluvial::cli

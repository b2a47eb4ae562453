#include "cli/audit_view.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <time.h>

#include <algorithm>

#include "core/config/settings.h"

namespace fluvial::cli {

std::string AuditLine::text(std::string_view key, std::string_view otherwise) const {
  const json::value& found = member(entry, key);
  if (found.is_string()) return std::string(found.get_string());
  return found.is_null() ? std::string(otherwise) : std::to_string(count_member(entry, key));
}

AuditLine audit_line_of(const store::AuditRow& row) {
  AuditLine line{row, "", {}};
  if (row.entry.empty()) {
    line.kind = "pruned";
    return line;
  }
  auto entry = parse_json(row.entry, "the entry");
  if (entry.ok()) line.entry = std::move(*entry);
  line.kind = line.text("kind", "unknown");
  return line;
}

Result<store::AuditRow> audit_row_of(const json::value& entry) {
  store::AuditRow row;
  row.number = count_member(entry, "number");
  row.at = WallTime(std::chrono::milliseconds(static_cast<std::int64_t>(count_member(entry, "at_ms"))));
  row.entry = text_member(entry, "entry");
  const auto chain = digest_from_hex(text_member(entry, "chain"));
  if (!chain.ok()) {
    return Error{Code::kDataLoss,
                 fmt::format("entry {} has no chain: the coordinator's answer is not one", row.number)};
  }
  row.chain = *chain;
  return row;
}

bool is_shown(const AuditFilter& filter, const AuditLine& line) {
  if (!filter.kinds.empty() && std::ranges::find(filter.kinds, line.kind) == filter.kinds.end()) return false;
  if (!filter.member.empty() && line.text("member") != filter.member) return false;
  return !filter.since || line.row.at >= *filter.since;
}

Result<WallTime> audit_since(const std::string& text, WallTime now) {
  if (const auto seconds = config::parse_seconds(text); seconds.ok() && !text.empty()) {
    return now - std::chrono::seconds(std::min<std::uint64_t>(*seconds, std::uint64_t{1} << 32));
  }
  for (const char* form : {"%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d"}) {
    tm parts{};
    const char* end = ::strptime(text.c_str(), form, &parts);
    if (end != nullptr && *end == '\0') return WallTime(std::chrono::seconds(::timegm(&parts)));
  }
  return Error{Code::kInvalidArgument,
               fmt::format("--since \"{}\": expected 30m, 12h, 7d, 2026-01-31 or 2026-01-31T12:00:00Z", text)};
}

std::string audit_time(WallTime at) {
  const auto ms = at.time_since_epoch().count() % 1000;
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", std::chrono::floor<std::chrono::seconds>(at), ms);
}

std::string audit_by(const AuditLine& line) {
  const std::string by = line.text("by", "-");
  if (const std::string name = line.text("operator"); !name.empty()) {
    return fmt::format("{} (operator {}, serial {})", name, line.text("operator_node"), line.text("operator_serial"));
  }
  if (member(line.entry, "uid").is_null()) return by;
  return fmt::format("{} (uid {}, pid {})", line.text("user", by), line.text("uid"), line.text("pid"));
}

std::string audit_what(const AuditLine& line) {
  if (const std::string name = line.text("member"); !name.empty()) return line.text("role", "member") + " " + name;
  if (const std::string run = line.text("run"); !run.empty()) return "run " + run;
  if (const std::string token = line.text("token"); !token.empty()) return "token " + token;
  return "-";
}

json::object audit_object(const AuditLine& line) {
  json::object object{{"number", line.row.number},
                      {"at", audit_time(line.row.at)},
                      {"kind", line.kind},
                      {"chain", to_hex(line.row.chain)}};
  if (line.entry.is_object()) {
    for (const auto& [key, value] : line.entry.get_object()) object.insert_or_assign(key, value);
  }
  return object;
}

}  // namespace fluvial::cli

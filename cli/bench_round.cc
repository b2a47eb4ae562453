#include "cli/bench_round.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace fluvial::cli {
namespace {

// docs/design/exactly-once.md: a refusal that says the update itself is no good. After any other one it is late.
bool drops_update(const std::string& code) {
  return code == "invalid_argument" || code == "data_loss" || code == "permission_denied" || code == "conflict";
}

}  // namespace

const json::value* entry_of(const json::array& entries, std::uint32_t node) {
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [node](const json::value& entry) { return count_member(entry, "site") == node; });
  return found == entries.end() ? nullptr : &*found;
}

bool is_dropped(const json::value& round, std::uint32_t node) {
  const json::value* const refusal = entry_of(array_member(round, "refused"), node);
  return refusal != nullptr && drops_update(text_member(*refusal, "code"));
}

Status check_weight(const json::value& round, std::uint64_t journalled, std::uint64_t expected) {
  if (expected != 0 && journalled == expected) return {};
  return Error{Code::kDataLoss, fmt::format("round {}: total weight {}, expected {}", count_member(round, "round"),
                                            journalled, expected)};
}

Result<json::array> first_pass_of(const json::value& round) {
  const json::array& passes = array_member(round, "passes");
  if (passes.size() == 1 && count_member(passes[0], "pass") == 0) return array_member(passes[0], "contributors");
  return Error{Code::kDataLoss, fmt::format("round {}: {} passes before the last, expected 1",
                                            count_member(round, "round"), passes.size())};
}

}  // namespace fluvial::cli

// What a check says of a machine: in one line what is so, in another what to do about it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fluvial::cli::doctor {

enum class Severity { kOk, kWarning, kError };

constexpr std::string_view severity_name(Severity severity) {
  switch (severity) {
    case Severity::kOk: return "ok";
    case Severity::kWarning: return "warning";
    case Severity::kError: return "error";
  }
  return "unknown";
}

struct Finding {
  Severity severity = Severity::kOk;
  std::string what;
  std::string advice = {};  // empty where there is nothing to do
  bool operator==(const Finding&) const = default;
};
using Findings = std::vector<Finding>;

}  // namespace fluvial::cli::doctor

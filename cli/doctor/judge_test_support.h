// How findings are looked at by tests.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <string>

#include "cli/doctor/judge.h"

namespace fluvial::cli::doctor {

inline constexpr Severity kWarning = Severity::kWarning;
inline constexpr Severity kError = Severity::kError;

// "error what -> advice", a line a finding.
inline std::string text_of(const Findings& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += fmt::format("{} {}{}\n", severity_name(finding.severity), finding.what,
                        finding.advice.empty() ? "" : " -> " + finding.advice);
  }
  return text;
}

inline std::size_t count_of(const Findings& findings, Severity severity) {
  return static_cast<std::size_t>(std::ranges::count(findings, severity, &Finding::severity));
}

// One finding that is no ok, of this severity, and both its lines hold this.
MATCHER_P3(Finds, severity, what, advice, "") {
  *result_listener << "\n" << text_of(arg);
  std::size_t bad = 0;
  bool found = false;
  for (const Finding& finding : arg) {
    if (finding.severity == Severity::kOk) continue;
    ++bad;
    found = found || (finding.severity == severity && finding.what.find(what) != std::string::npos &&
                      finding.advice.find(advice) != std::string::npos && !finding.advice.empty());
  }
  return found && bad == 1;
}

MATCHER(FindsNothing, "") {
  *result_listener << "\n" << text_of(arg);
  return !arg.empty() && count_of(arg, Severity::kOk) == arg.size();
}

inline const Node kSite{.role = Role::kSite};
inline const Node kAggregator{.role = Role::kAggregator, .sessions_max = 20'000, .staging_bytes_max = 256 << 20};
inline const Node kCoordinator{.role = Role::kCoordinator, .sessions_max = 20'000, .staging_bytes_max = 256 << 20};

}  // namespace fluvial::cli::doctor

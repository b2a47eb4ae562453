// Every metric that a process of ours serves, declared once: the series (metrics.h) are made from here, and so is
// docs/operations/metrics.md. A name that is not declared for a role cannot be counted there.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/ids.h"

namespace fluvial::telemetry {

enum class Kind { kCounter, kGauge, kHistogram };
std::string_view kind_name(Kind kind);  // "counter", ...: as the text format has it

// A set of roles.
using Roles = std::uint8_t;
inline constexpr Roles kCoordinators = 1;
inline constexpr Roles kAggregators = 2;
inline constexpr Roles kSites = 4;
inline constexpr Roles kParents = kCoordinators | kAggregators;
inline constexpr Roles kChildren = kAggregators | kSites;
inline constexpr Roles kEveryRole = kParents | kSites;
bool includes(Roles roles, Role role);

struct LabelValue {
  LabelValue(const char* t, Roles r = kEveryRole) : text(t), roles(r) {}       // NOLINT(google-explicit-*)
  LabelValue(std::string_view t, Roles r = kEveryRole) : text(t), roles(r) {}  // NOLINT(google-explicit-*)
  std::string_view text;
  Roles roles;  // at which it occurs
};

struct Label {
  std::string_view name;
  std::vector<LabelValue> values;  // none: names of members, or of what workers report; their number has a bound
};

struct Declaration {
  std::string_view name;  // without fluvial_<role>_; a name of `kProcess` as it is
  Kind kind = Kind::kGauge;
  Roles roles = kEveryRole;
  std::string_view help;  // one line, without a full stop
  std::vector<Label> labels = {};
  std::string_view since = {};  // when the first series comes; empty: it is there from the first scrape on, with 0

  // Whether each series is known beforehand.
  bool is_closed() const;
};

struct Subject {
  std::string_view title;
  std::string_view about;  // a paragraph for the page, or empty
  bool has_prefix = true;
  std::vector<Declaration> metrics;
};

std::span<const Subject> declared_metrics();
const Declaration* find_declared(std::string_view name, Role role);  // null: no such metric there
std::string served_name(std::string_view name, Role role);           // "fluvial_site_workers"

// The tables in docs/operations/metrics.md; a test compares them (FLUVIAL_UPDATE_DOCS=1 writes them).
std::string metrics_markdown();

}  // namespace fluvial::telemetry

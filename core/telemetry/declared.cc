#include "core/telemetry/declared.h"

#include <algorithm>

#include "core/base/result.h"
#include "core/telemetry/subjects.h"

namespace fluvial::telemetry {

std::string_view kind_name(Kind kind) {
  switch (kind) {
    case Kind::kCounter: return "counter";
    case Kind::kGauge: return "gauge";
    case Kind::kHistogram: return "histogram";
  }
  return "untyped";
}

bool includes(Roles roles, Role role) {
  switch (role) {
    case Role::kCoordinator: return (roles & kCoordinators) != 0;
    case Role::kAggregator: return (roles & kAggregators) != 0;
    case Role::kSite: return (roles & kSites) != 0;
    case Role::kOperator: return false;
  }
  return false;
}

bool Declaration::is_closed() const {
  return std::ranges::none_of(labels, [](const Label& label) { return label.values.empty(); });
}

std::span<const Subject> declared_metrics() {
  static const std::vector<Subject> all = {process_subject(), sessions_subject(), disk_subject(),  parent_subject(),
                                           bytes_subject(),   rounds_subject(),   times_subject(), runs_subject(),
                                           members_subject(), site_subject()};
  return all;
}

const Declaration* find_declared(std::string_view name, Role role) {
  for (const Subject& subject : declared_metrics()) {
    for (const Declaration& metric : subject.metrics) {
      if (metric.name == name && includes(metric.roles, role)) return &metric;
    }
  }
  return nullptr;
}

std::string served_name(std::string_view name, Role role) {
  return "fluvial_" + std::string(role_name(role)) + "_" + std::string(name);
}

// ---- the page -----------------------------------------------------------------------------------------------------

namespace {

std::string roles_text(Roles roles) {
  if (roles == kEveryRole) return "all";
  std::string text;
  for (const auto& [bit, name] :
       {std::pair{kCoordinators, "coordinator"}, {kAggregators, "aggregator"}, {kSites, "site"}}) {
    if ((roles & bit) != 0) text += std::string(text.empty() ? "" : ", ") + name;
  }
  return text;
}

std::string name_text(const Declaration& metric) {
  std::string names;
  for (const Label& label : metric.labels) names += std::string(names.empty() ? "" : ",") + std::string(label.name);
  return "`" + std::string(metric.name) + (names.empty() ? "" : "{" + names + "}") + "`";
}

std::string values_text(const Label& label, Roles roles) {
  std::string text;
  for (const LabelValue& value : label.values) {
    if ((value.roles & roles) == 0) continue;
    text += (text.empty() ? "`" : ", `") + std::string(value.text) + "`";
    if ((value.roles & roles) != roles) text += " (" + roles_text(value.roles & roles) + ")";
  }
  return "; `" + std::string(label.name) + "`: " + text;
}

std::string row(const Declaration& metric) {
  std::string meaning(metric.help);
  for (const Label& label : metric.labels) {
    if (!label.values.empty()) meaning += values_text(label, metric.roles);
  }
  if (!metric.since.empty()) meaning += ". Absent until " + std::string(metric.since);
  return "| " + name_text(metric) + " | " + std::string(kind_name(metric.kind)) + " | " + roles_text(metric.roles) +
         " | " + meaning + " |\n";
}

}  // namespace

std::string metrics_markdown() {
  std::string page;
  for (const Subject& subject : declared_metrics()) {
    page += (page.empty() ? "## " : "\n## ") + std::string(subject.title) + "\n\n";
    if (!subject.about.empty()) page += std::string(subject.about) + "\n\n";
    page += "| name | kind | at | meaning |\n|---|---|---|---|\n";
    for (const Declaration& metric : subject.metrics) page += row(metric);
  }
  return page;
}

}  // namespace fluvial::telemetry

// plan.toml (docs/operations/plan.md).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/config/toml_file.h"
#include "core/round/plan.h"

namespace fluvial::config {

struct PlanFile {
  round::Plan plan;
  std::string model;                    // the initial model's path, relative to the plan's folder. Empty: none named
  bool names_participants_min = false;  // else parse_plan() and load_plan() make it the quorum, where that is more
};

// What this room cannot judge, such as the codec. The error's message begins with "key = ".
using PlanCheck = std::function<Status(const round::Plan&)>;

// kInvalidArgument: one line naming file, line, key, value and what was expected; kNotFound.
Result<PlanFile> load_plan(const std::string& path, const PlanCheck& also = nullptr);
// The same from text; `path` names it in messages and anchors a relative model.
Result<PlanFile> parse_plan(std::string_view toml, const std::string& path, const PlanCheck& also = nullptr);
// The same from a file's keys, or from those of one of its tables.
Result<PlanFile> plan_of(std::vector<TomlEntry> entries, const std::string& path, const PlanCheck& also = nullptr);

// Writes every key that the plan may have. `model` is written as it is.
std::string plan_to_toml(const PlanFile& file);

struct PlanRow {
  std::string key;
  std::string default_value;
  std::string unit;
  std::string help;
};
std::vector<PlanRow> describe_plan();
std::string plan_markdown();  // the table in docs/operations/plan.md; a test compares it

}  // namespace fluvial::config

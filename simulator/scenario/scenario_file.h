// scenario.toml : every number is a value, or [low, high] drawn from the seed; every text
// of the plan is a text, or a list of which the seed takes one (of optimizers onebit_adam for a codec onebit_adam,
// which goes with no other). `base` names another file, whose keys hold unless this one says otherwise.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/config/toml_file.h"
#include "simulator/scenario/scenario.h"

namespace fluvial::simulator {

class ScenarioFile {
 public:
  // kInvalidArgument: one line naming file, line, key, value and what was expected; kNotFound.
  static Result<ScenarioFile> load(const std::string& path);
  // The same from text; `path` names it in messages and anchors `base`.
  static Result<ScenarioFile> parse(std::string_view toml, const std::string& path);

  // Overrides one number of the file. kInvalidArgument: no such key, or beyond its bounds.
  Status set(const std::string& key, double value);

  const std::string& path() const { return path_; }
  const std::string& name() const { return name_; }
  // The scenario of this seed: the same for the same file and seed. kInvalidArgument when the drawn plan is invalid,
  // such as a soft deadline behind the hard one.
  Result<Scenario> draw(std::uint64_t seed) const;

 private:
  struct Range {
    std::size_t key_index;  // of scenario_keys()
    double low;
    double high;
  };
  static Result<ScenarioFile> parse_over(std::string_view toml, const std::string& path, bool is_base);
  static Result<Range> range_of(const config::TomlEntry& entry, const std::string& place, std::size_t key_index);
  Status add(const config::TomlEntry& entry);
  Status add_plan(const config::TomlEntry& entry, const std::string& place);
  Status check_plans() const;
  Result<Scenario> with_plan(Scenario scenario, const std::vector<config::TomlEntry>& plan) const;

  std::string path_;
  std::string name_;
  std::vector<Range> ranges_;
  std::vector<config::TomlEntry> plan_;  // without "plan."
};

std::string scenario_markdown();  // the table; a test compares it

}  // namespace fluvial::simulator

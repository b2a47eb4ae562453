// The one declaration of every setting: its key, how its text is read and written, and what it means. Inside this room
// only.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/settings.h"

namespace fluvial::config {

template <typename Owner>
struct Setting {
  std::string key;
  std::string unit;
  std::string help;
  bool required = false;
  // An error's message says only what was expected: the reader puts source, key and value before it.
  std::function<Status(Owner&, std::string_view)> set;
  std::function<std::string(const Owner&)> get;
};

// In the order of the documentation: the settings of every process come first.
template <typename Settings>
const std::vector<Setting<Settings>>& declaration();
template <>
const std::vector<Setting<CoordinatorSettings>>& declaration();
template <>
const std::vector<Setting<AggregatorSettings>>& declaration();
template <>
const std::vector<Setting<EdgeSettings>>& declaration();
std::size_t common_settings_count();

// A setting that is valid by itself, but not beside the others.
struct Conflict {
  std::string key;
  std::string value;
  std::string expected;
};
std::optional<Conflict> find_conflict(const CommonSettings& settings);
std::optional<Conflict> find_conflict(const CoordinatorSettings& settings);
std::optional<Conflict> find_conflict(const EdgeSettings& settings);

std::string flag_of(const std::string& key);
std::string env_of(const std::string& key);

}  // namespace fluvial::config

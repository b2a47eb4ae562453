// A TOML file as a flat list of keys: [session] heartbeat_interval_ms becomes "session.heartbeat_interval_ms". toml++
// costs seconds to compile and is included by toml_file.cc alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace fluvial::config {

struct TomlEntry {
  std::string key;
  std::string value;  // as text; of a string, its content
  bool is_number = false;
  std::uint32_t line = 0;
  // The items of an array, all of them texts, numbers or truth values; `value` is then the first item.
  std::vector<std::string> items = {};
  bool is_boolean = false;
  std::string name = {};  // the end of `key`: what stands in the innermost table. It may itself hold a dot
};

enum class Arrays { kRefused, kTaken };

// kInvalidArgument naming file and line: beyond the bounds of toml_bounds.h, not TOML, or a value that is a date or an
// array (if arrays are accepted: an array that is empty, nested, or of several kinds).
Result<std::vector<TomlEntry>> parse_toml(std::string_view text, const std::string& path,
                                          Arrays arrays = Arrays::kRefused);
Result<std::vector<TomlEntry>> read_toml(const std::string& path);  // kNotFound; at most 1 MiB
Result<std::string> read_text_file(const std::string& path);

}  // namespace fluvial::config

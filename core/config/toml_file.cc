#include "core/config/toml_file.h"

#include <toml++/toml.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string_view>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "core/base/printable.h"
#include "core/config/setting_kinds.h"
#include "core/config/toml_bounds.h"

namespace fluvial::config {
namespace {

constexpr std::size_t kFileBytesMax = 1 << 20;

std::string where(const std::string& path, std::uint32_t line) {
  return line == 0 ? path : path + ":" + std::to_string(line);
}

bool read_scalar(const toml::node& node, TomlEntry& entry) {
  if (const auto* text = node.as_string()) {
    entry.value = text->get();
  } else if (const auto* integer = node.as_integer()) {
    entry.value = std::to_string(integer->get());
    entry.is_number = true;
  } else if (const auto* real = node.as_floating_point()) {
    entry.value = format_number(real->get());
    entry.is_number = true;
  } else if (const auto* boolean = node.as_boolean()) {
    entry.value = boolean->get() ? "true" : "false";
    entry.is_boolean = true;
  } else {
    return false;
  }
  return true;
}

bool read_array(const toml::array& array, TomlEntry& entry) {
  for (const toml::node& node : array) {
    TomlEntry item;
    if (!read_scalar(node, item)) return false;
    const bool same = item.is_number == entry.is_number && item.is_boolean == entry.is_boolean;
    if (!entry.items.empty() && !same) return false;
    entry.is_number = item.is_number;
    entry.is_boolean = item.is_boolean;
    entry.items.push_back(item.value);
  }
  if (entry.items.empty()) return false;
  entry.value = entry.items.front();
  return true;
}

Status flatten(const toml::table& table, const std::string& prefix, const std::string& path, Arrays arrays,
               std::vector<TomlEntry>& entries) {
  for (const auto& [name, node] : table) {
    TomlEntry entry;
    entry.name = name.str();
    entry.key = prefix + entry.name;
    entry.line = node.source().begin.line;
    if (const auto* inner = node.as_table()) {
      if (inner->empty() && !prefix.empty()) {
        return Error{Code::kInvalidArgument, where(path, entry.line) + ": " + printable(entry.key, 200) +
                                                 ": expected a value, not an empty table"};
      }
      FLUVIAL_TRY(flatten(*inner, entry.key + ".", path, arrays, entries));
      continue;
    }
    const auto* array = node.as_array();
    const bool taken =
        array != nullptr && arrays == Arrays::kTaken ? read_array(*array, entry) : read_scalar(node, entry);
    if (!taken) {
      const std::string what = arrays == Arrays::kTaken ? "a text, number, true or false, or a list of such"
                                                        : "a single text, number, true or false";
      return Error{Code::kInvalidArgument,
                   where(path, entry.line) + ": " + printable(entry.key, 200) + ": expected " + what};
    }
    entries.push_back(std::move(entry));
  }
  return {};
}

}  // namespace

Result<std::vector<TomlEntry>> parse_toml(std::string_view text, const std::string& path, Arrays arrays) {
  FLUVIAL_TRY(check_toml_bounds(text, path));
  std::vector<TomlEntry> entries;
  try {
    const toml::table table = toml::parse(text);
    FLUVIAL_TRY(flatten(table, "", path, arrays, entries));
  } catch (const toml::parse_error& error) {
    return Error{Code::kInvalidArgument,
                 where(path, error.source().begin.line) + ": not TOML: " + printable(error.description(), 300)};
  }
  std::ranges::sort(entries, {}, [](const TomlEntry& entry) { return std::tie(entry.line, entry.key); });
  std::unordered_set<std::string_view> keys;
  for (const TomlEntry& entry : entries) {
    if (!keys.insert(entry.key).second) {  // toml++ takes "a.b" = 1 and [a] b = 2 for two
      return Error{Code::kInvalidArgument,
                   where(path, entry.line) + ": " + printable(entry.key, 200) + " stands twice"};
    }
  }
  return entries;
}

Result<std::string> read_text_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error{Code::kNotFound, path + ": cannot be read"};
  std::string text(kFileBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return Error{Code::kUnavailable, path + ": cannot be read"};
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kFileBytesMax) return Error{Code::kInvalidArgument, path + ": expected at most 1 MiB"};
  return text;
}

Result<std::vector<TomlEntry>> read_toml(const std::string& path) {
  FLUVIAL_ASSIGN(const std::string text, read_text_file(path));
  return parse_toml(text, path);
}

}  // namespace fluvial::config

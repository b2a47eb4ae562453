#include "tests/digests/table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "core/base/check.h"
#include "core/store/file_system.h"

namespace fluvial::digests {
namespace {

std::vector<std::string> quoted(const std::vector<std::string>& items) {
  std::vector<std::string> texts;
  for (const std::string& item : items) texts.push_back(fmt::format("\"{}\"", item));
  return texts;
}

std::string list_line(const char* key, const std::vector<std::string>& items) {
  return items.empty() ? "" : fmt::format("{} = [{}]\n", key, fmt::join(quoted(items), ", "));
}

std::string to_toml(const Entry& entry) {
  std::string text = fmt::format("\n[{}]\n", entry.name);
  for (const config::TomlEntry& setting : entry.settings) text += setting_to_toml(setting);
  text += fmt::format("model = \"{}\"\n", entry.digests.model);
  text += list_line("models", entry.digests.models);
  text += list_line("sums", entry.digests.sums);
  text += list_line("updates", entry.digests.updates);
  return text + fmt::format("why = \"{}\"\n", entry.why);
}

std::string head_of(std::string_view text) {
  std::size_t end = 0;
  while (end < text.size() && text[end] == '#') end = std::min(text.find('\n', end), text.size() - 1) + 1;
  return std::string(text.substr(0, end));
}

void read_key(const config::TomlEntry& key, Entry& entry) {
  if (key.key == "model") {
    entry.digests.model = key.value;
  } else if (key.key == "models") {
    entry.digests.models = key.items;
  } else if (key.key == "sums") {
    entry.digests.sums = key.items;
  } else if (key.key == "updates") {
    entry.digests.updates = key.items;
  } else if (key.key == "why") {
    entry.why = key.value;
  } else {
    entry.settings.push_back(key);
  }
}

// The first, in the order in which one follows from the other; empty when there is none.
std::string difference(const Digests& recorded, const Digests& now) {
  struct Column {
    const char* name;
    const std::vector<std::string>& recorded;
    const std::vector<std::string>& now;
  };
  const Column columns[] = {{"the first site's update", recorded.updates, now.updates},
                            {"the sum", recorded.sums, now.sums},
                            {"the model", recorded.models, now.models}};
  for (std::size_t i = 0; i < now.models.size(); ++i) {
    for (const Column& column : columns) {
      const std::string was = i < column.recorded.size() ? column.recorded[i] : "none";
      const std::string is = i < column.now.size() ? column.now[i] : "none";
      if (was != is) return fmt::format("{} of round {}: {} was recorded, now it is {}", column.name, i + 1, was, is);
    }
  }
  if (recorded == now) return "";
  return fmt::format("the last model: {} was recorded, now it is {}", recorded.model, now.model);
}

}  // namespace

std::string cut(const std::string& digest) { return digest.substr(0, 16); }

std::uint64_t Entry::number(const std::string& key) const {
  const auto found = std::ranges::find(settings, key, &config::TomlEntry::key);
  return found == settings.end() ? 0 : std::stoull(found->value);
}

std::vector<config::TomlEntry> Entry::settings_below(const std::string& prefix) const {
  std::vector<config::TomlEntry> below;
  for (config::TomlEntry setting : settings) {
    if (!setting.key.starts_with(prefix)) continue;
    setting.key.erase(0, prefix.size());
    below.push_back(std::move(setting));
  }
  return below;
}

std::string setting_to_toml(const config::TomlEntry& setting) {
  return fmt::format("{} = {}\n", setting.key,
                     setting.is_number ? setting.value : fmt::format("\"{}\"", setting.value));
}

Result<Table> Table::load(const std::string& path) {
  FLUVIAL_ASSIGN(const std::string text, config::read_text_file(path));
  FLUVIAL_ASSIGN(std::vector<config::TomlEntry> keys, config::parse_toml(text, path, config::Arrays::kTaken));
  std::ranges::sort(keys, {}, &config::TomlEntry::line);
  Table table;
  table.path_ = path;
  table.head_ = head_of(text);
  for (config::TomlEntry& key : keys) {
    const std::size_t dot = key.key.find('.');
    if (dot == std::string::npos) {
      return Error{Code::kInvalidArgument, fmt::format("{}:{}: {} is in no entry", path, key.line, key.key)};
    }
    const std::string name = key.key.substr(0, dot);
    key.key.erase(0, dot + 1);
    if (table.entries_.empty() || table.entries_.back().name != name) table.entries_.push_back({.name = name});
    read_key(key, table.entries_.back());
  }
  return table;
}

void Table::record(const std::string& name, const Digests& digests, const std::string& why) {
  const auto entry = std::ranges::find(entries_, name, &Entry::name);
  FLUVIAL_CHECK(entry != entries_.end(), "an entry of this table");
  entry->digests = digests;
  entry->why = why;
}

Status Table::save() const {
  std::string text = head_;
  for (const Entry& entry : entries_) text += to_toml(entry);
  store::PosixFileSystem files;
  const std::array<ByteSpan, 1> parts = {as_byte_span(text)};
  return store::write_file_atomically(files, path_, parts);
}

void check_table(const std::string& path, const std::string& where, bool records,
                 const std::function<Result<Digests>(const Entry&)>& run) {
  Result<Table> table = Table::load(path);
  ASSERT_TRUE(table.ok()) << table.error().message;
  const char* const why = records ? std::getenv("FLUVIAL_DIGESTS_WHY") : nullptr;
  Table recorded = *table;
  for (const Entry& entry : table->entries()) {
    const Result<Digests> now = run(entry);
    ASSERT_TRUE(now.ok()) << path << ": " << entry.name << ", " << where << ": " << now.error().message;
    const std::string differs = difference(entry.digests, *now);
    if (why == nullptr) {
      EXPECT_EQ(differs, "") << path << ": " << entry.name << ", " << where << "; recorded because: " << entry.why;
    } else if (!differs.empty()) {
      recorded.record(entry.name, *now, why);
      fmt::print("{}: {}: {}\n", path, entry.name, differs);
    }
  }
  if (why == nullptr) return;
  const Status saved = recorded.save();
  EXPECT_TRUE(saved.ok()) << saved.error().message;
}

}  // namespace fluvial::digests

#include "core/config/plan_file.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <type_traits>
#include <utility>
#include <variant>

#include "core/base/format.h"
#include "core/base/printable.h"
#include "core/config/reader.h"
#include "core/config/setting_kinds.h"
#include "core/round/plan_keys.h"

namespace fluvial::config {
namespace {

using round::Milliseconds;
using round::MissingWorkers;
using round::PlanKey;
using round::ServerOptimizer;

template <typename Field>
constexpr bool kIsTable = std::is_same_v<std::remove_cvref_t<Field>, round::WorkerTable>;  // [worker]

constexpr PlanKey kModel{"model", 0, "path", "the safetensors file to start from; relative to the plan's folder"};

template <typename File, typename Visit>
void visit_file(File& file, Visit&& visit) {
  round::visit_plan(file.plan, [&](const PlanKey& key, auto& field) {
    visit(key, field);
    if (key.name == "name") visit(kModel, file.model);
  });
}

// Parses a value's text; an error says what was expected. check_plan() checks ranges.
Status parse(std::string_view text, std::string& to) { return round::assign(to, parse_text(text)); }
Status parse(std::string_view text, std::uint64_t& to) { return round::assign(to, parse_count(text)); }
Status parse(std::string_view text, std::uint32_t& to) {
  FLUVIAL_ASSIGN(const std::uint64_t number, parse_count(text));
  if (number > 0xffff'ffff) return expected("0 to 4294967295");
  to = static_cast<std::uint32_t>(number);
  return {};
}
Status parse(std::string_view text, double& to) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), to);
  if (error != std::errc{} || end != text.data() + text.size() || text.empty()) return expected("a number");
  return {};
}
Status parse(std::string_view text, bool& to) {
  if (text != "true" && text != "false") return expected("true or false");
  to = text == "true";
  return {};
}
Status parse(std::string_view text, Milliseconds& to) {
  FLUVIAL_ASSIGN(const std::uint64_t ms, parse_milliseconds(text));
  if (ms > std::uint64_t{1} << 40) return expected("at most a day");
  to = Milliseconds(static_cast<std::int64_t>(ms));
  return {};
}
Status parse(std::string_view text, MissingWorkers& to) {
  return round::assign(to, round::missing_workers_from_name(text));
}
Status parse(std::string_view text, ServerOptimizer& to) {
  return round::assign(to, round::parse_server_optimizer(text));
}

// A value as documentation and plan.toml show it; a text without its quotes.
template <typename Number>
std::string format(const Number& value) {
  return text_of(value);
}
std::string format(const round::WorkerTable&) { return ""; }  // by entries
std::string format(Milliseconds value) { return std::to_string(value.count()); }
std::string format(MissingWorkers value) { return std::string(round::missing_workers_name(value)); }
std::string format(const ServerOptimizer& value) { return round::to_string(value); }

// ---- [worker] ----------------------------------------------------------------------------------------------------

Status parse(const TomlEntry& entry, round::WorkerValue& to) {
  if (entry.is_boolean && !entry.items.empty()) return expected("a list of numbers or of texts");
  if (entry.is_boolean) return to = entry.value == "true", Status();
  if (!entry.is_number && entry.items.empty()) return to = entry.value, Status();
  if (!entry.is_number) return to = entry.items, Status();
  std::vector<double> numbers(std::max<std::size_t>(entry.items.size(), 1));
  FLUVIAL_TRY(parse(entry.value, numbers[0]));
  for (std::size_t i = 1; i < numbers.size(); ++i) FLUVIAL_TRY(parse(entry.items[i], numbers[i]));
  if (entry.items.empty()) return to = numbers[0], Status();
  return to = std::move(numbers), Status();
}

// Of a key of the table, without the table's name: a value, or, within a table of its own, a part of a schedule.
Status parse(const TomlEntry& entry, std::string key, round::WorkerTable& to) {
  round::WorkerValue value;
  FLUVIAL_TRY(parse(entry, value));
  if (entry.name.empty() || key.size() <= entry.name.size()) return to.values[key] = std::move(value), Status();
  const std::vector<std::string>& parts = round::schedule_parts();
  if (std::ranges::find(parts, entry.name) == parts.end()) {
    const std::string near = closest(entry.name, parts);
    if (!near.empty()) return expected("a part of a schedule; did you mean '" + near + "'?");
    std::ranges::replace(key, '.', '_');
    return expected(
        "a part of a schedule (start, end, decay, ...), the only table within [worker]: give the value a key "
        "of its own, worker." +
        key);
  }
  if (!entry.items.empty()) return expected("a number or a text, as a part of a schedule");
  key.resize(key.size() - entry.name.size() - 1);
  return round::set_part(to.schedules[key], entry.name, value);
}

bool is_bare(std::string_view key) {
  return !key.empty() && key.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") ==
                             std::string_view::npos;
}

std::string toml_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      out += format_text("\\u00{}{}", "0123456789ABCDEF"[byte >> 4], "0123456789ABCDEF"[byte & 15]);
    } else {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out + '"';
}

// A whole number that TOML's integers do not hold.
bool is_beyond_integers(std::string_view text) {
  std::int64_t whole = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), whole);
  return error == std::errc::result_out_of_range && end == text.data() + text.size();
}

std::string to_toml(double number) {
  const std::string text = text_of(number);
  return is_beyond_integers(text) ? text + ".0" : text;
}
std::string to_toml(bool truth) { return text_of(truth); }
std::string to_toml(const std::string& text) { return toml_text(text); }
template <typename Item>
std::string to_toml(const std::vector<Item>& items) {
  std::string out;
  for (const Item& item : items) out += (out.empty() ? "" : ", ") + to_toml(item);
  return "[" + out + "]";
}
std::string to_toml(const round::WorkerValue& value) {
  return std::visit([](const auto& held) { return to_toml(held); }, value);
}
std::string to_toml(const round::Schedule& schedule) {
  std::string out;
  for (const auto& [name, part] : round::parts_of(schedule)) {
    out += format_text("{}{} = {}", out.empty() ? "" : ", ", name, to_toml(part));
  }
  return "{" + out + "}";
}

// What the string form refuses, too: "fedavg:momentum=0.9".
Status check_momentum(const ServerOptimizer& optimizer) {
  if (round::has_momentum(optimizer.kind)) return {};
  return Error{Code::kInvalidArgument,
               format_text("optimizer.momentum = {}: expected none with optimizer {}; fedavgm, nesterov, "
                           "delayed_nesterov and lars have one",
                           optimizer.momentum, round::optimizer_name(optimizer.kind))};
}

// ---- a file ------------------------------------------------------------------------------------------------------

// The keys of a table, without its name. Empty: there is no such table.
std::string names_within(const std::string& table, const std::vector<std::string>& known) {
  std::string names;
  for (const std::string& key : known) {
    if (key.starts_with(table + ".")) names += (names.empty() ? "" : ", ") + key.substr(table.size() + 1);
  }
  return names;
}

Status apply(PlanFile& file, const TomlEntry& entry, const std::string& place) {
  Status status;
  bool found = false;
  std::vector<std::string> known;
  visit_file(file, [&](const PlanKey& key, auto& field) {
    if constexpr (kIsTable<decltype(field)>) {
      const std::string prefix = std::string(key.name) + ".";
      if (!entry.key.starts_with(prefix)) return;
      found = true;
      status = parse(entry, entry.key.substr(prefix.size()), field);
    } else {
      known.emplace_back(key.name);
      if (entry.key != key.name) return;
      found = true;
      status = entry.items.empty() ? parse(entry.value, field) : expected("a single text, number, true or false");
    }
  });
  if (!found) {
    const std::string names = names_within(entry.key, known);
    if (!names.empty()) {
      return Error{Code::kInvalidArgument, place + entry.key + " = '" + printable(entry.value, 80) +
                                               "': expected a table, [" + entry.key + "], of " + names};
    }
    const std::string near = closest(entry.key, known);
    return Error{Code::kInvalidArgument, place + "unknown key '" + printable(entry.key, 80) + "'" +
                                             (near.empty() ? "" : ": did you mean '" + near + "'?")};
  }
  if (status.ok()) return {};
  return Error{Code::kInvalidArgument,
               place + printable(entry.key, 80) + " = '" + printable(entry.value, 80) + "': " + status.error().message};
}

// What a check says about "key = value": behind the line that set the first such key, and each duration as it was
// typed.
std::string as_typed(PlanFile& file, const std::vector<TomlEntry>& entries, const std::string& path,
                     std::string message) {
  std::size_t first = std::string::npos;
  std::string place = path + ": ";
  for (const TomlEntry& entry : entries) {
    const std::string found_as = entry.key + " = ";
    const std::size_t at = message.find(found_as);
    if (at == std::string::npos || (at > 0 && message[at - 1] != ' ')) continue;
    if (at < first) place = path + ":" + std::to_string(entry.line) + ": ";
    first = std::min(first, at);
    round::visit_plan(file.plan, [&](const PlanKey& key, const auto& field) {
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(field)>, Milliseconds>) {
        if (key.name == entry.key && !entry.is_number) {
          message.replace(at, found_as.size() + format(field).size(), found_as + "'" + entry.value + "'");
        }
      }
    });
  }
  return place + message;
}

}  // namespace

Result<PlanFile> parse_plan(std::string_view toml, const std::string& path, const PlanCheck& also) {
  FLUVIAL_ASSIGN(std::vector<TomlEntry> entries, parse_toml(toml, path, Arrays::kTaken));
  FLUVIAL_ASSIGN(PlanFile file, plan_of(std::move(entries), path, also));
  if (!file.names_participants_min) file.plan.participants_min = std::max(file.plan.participants_min, file.plan.quorum);
  return file;
}

Result<PlanFile> plan_of(std::vector<TomlEntry> entries, const std::string& path, const PlanCheck& also) {
  PlanFile file;
  // The optimizer's name first: it sets defaults, which other keys change.
  const auto name = std::ranges::find(entries, "optimizer.name", &TomlEntry::key);
  if (name != entries.end()) std::rotate(entries.begin(), name, name + 1);
  const auto mode = std::ranges::find(entries, "mode", &TomlEntry::key);
  if (mode != entries.end() && mode->items.empty()) round::set_mode(mode->value, &file.plan);  // likewise
  for (const TomlEntry& entry : entries) {
    FLUVIAL_TRY(apply(file, entry, path + ":" + std::to_string(entry.line) + ": "));
  }
  const auto names = [&](std::string_view key) {
    return std::ranges::find(entries, key, &TomlEntry::key) != entries.end();
  };
  if (!names("name")) return Error{Code::kInvalidArgument, path + ": name is missing"};
  file.names_participants_min = names("participants.min");
  Status status = round::check_plan(file.plan);
  if (status.ok() && names("optimizer.momentum")) status = check_momentum(file.plan.optimizer);
  if (status.ok() && also) status = also(file.plan);
  if (!status.ok()) return Error{Code::kInvalidArgument, as_typed(file, entries, path, status.error().message)};
  if (!file.model.empty()) {
    const std::filesystem::path model(file.model);
    if (model.is_relative()) file.model = (std::filesystem::path(path).parent_path() / model).string();
  }
  return file;
}

Result<PlanFile> load_plan(const std::string& path, const PlanCheck& also) {
  FLUVIAL_ASSIGN(const std::string text, read_text_file(path));
  return parse_plan(text, path, also);
}

std::string plan_to_toml(const PlanFile& file) {
  std::string text, table;
  const auto put = [&](std::string_view in, std::string_view name, const std::string& value) {
    if (in != table) text += format_text("\n[{}]\n", in);
    table = in;
    text += format_text("{} = {}\n", name, value);
  };
  visit_file(file, [&](const PlanKey& key, const auto& field) {
    if constexpr (kIsTable<decltype(field)>) {
      const auto put_all = [&](const auto& entries) {
        for (const auto& [name, value] : entries) put(key.name, is_bare(name) ? name : toml_text(name), to_toml(value));
      };
      put_all(field.values);
      put_all(field.schedules);
    } else {
      if (key.name == "optimizer.momentum" && !round::has_momentum(file.plan.optimizer.kind)) return;
      const std::size_t dot = key.name.find('.');
      const std::string value = format(field);
      const bool is_text = key.unit == "text" || key.unit == "path" || is_beyond_integers(value);
      put(dot == std::string_view::npos ? "" : key.name.substr(0, dot), key.name.substr(dot + 1),
          is_text ? toml_text(value) : value);
    }
  });
  return text;
}

std::vector<PlanRow> describe_plan() {
  std::vector<PlanRow> rows;
  const PlanFile defaults;
  visit_file(defaults, [&](const PlanKey& key, const auto& field) {
    const std::string shown = key.name == "name" ? "(required)" : format(field);
    rows.push_back({std::string(key.name) + (kIsTable<decltype(field)> ? ".*" : ""),
                    shown.substr(0, shown.find(':')),  // an optimizer's options have defaults of their own
                    std::string(key.unit), std::string(key.help)});
  });
  return rows;
}

std::string plan_markdown() {
  std::string text = "| key | default | unit | meaning |\n|---|---|---|---|\n";
  for (const PlanRow& key : describe_plan()) {
    const bool required = key.default_value == "(required)";
    const std::string shown = key.default_value.empty() ? "(none)" : "`" + key.default_value + "`";
    text += "| `" + key.key + "` | " + (required ? "required" : shown) + " | " + key.unit + " | " + key.help + " |\n";
  }
  return text;
}

}  // namespace fluvial::config

#include "simulator/scenario/scenario_file.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <utility>

#include "core/config/plan_file.h"
#include "core/config/reader.h"
#include "simulator/scenario/chance.h"
#include "simulator/scenario/keys.h"

namespace fluvial::simulator {
namespace {

constexpr std::string_view kPlanPrefix = "plan.";

std::string number_text(double value) {
  char text[64];
  const auto [end, error] = std::to_chars(text, text + sizeof(text), value);
  return {text, end};
}

bool is_whole_text(const std::string& text) { return text.find_first_of(".eE") == std::string::npos; }

double number_of(const std::string& text) {
  double number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

Error wrong(const std::string& place, const config::TomlEntry& entry, const std::string& expected) {
  std::string value = entry.value;
  if (!entry.items.empty()) {
    value = "[";
    for (const std::string& item : entry.items) value += (value.size() > 1 ? ", " : "") + item;
    value += "]";
  }
  return {Code::kInvalidArgument, place + entry.key + " = '" + value + "': expected " + expected};
}

std::vector<std::string> known_keys() {
  std::vector<std::string> keys = {"name", "base"};
  for (const ScenarioKey& key : scenario_keys()) keys.push_back(key.key);
  for (const config::PlanRow& key : config::describe_plan()) keys.push_back(std::string(kPlanPrefix) + key.key);
  return keys;
}

// 1-bit Adam is a codec and an optimizer, and neither goes with another one: where both are lists, the codec decides.
void choose_optimizer(std::vector<config::TomlEntry>& plan) {
  constexpr std::string_view kBoth = "onebit_adam";
  const auto codec = std::ranges::find(plan, "codec", &config::TomlEntry::key);
  const auto optimizer = std::ranges::find(plan, "optimizer.name", &config::TomlEntry::key);
  if (codec == plan.end() || optimizer == plan.end() || optimizer->items.empty()) return;
  if (!codec->value.starts_with(kBoth) || optimizer->value.starts_with(kBoth)) return;
  optimizer->value = kBoth;
  const auto averaged = std::ranges::find(plan, "optimizer.averaged", &config::TomlEntry::key);
  if (averaged != plan.end()) averaged->value = round::kNoStatistics;  // it steps every tensor at the sites
}

double draw_number(Rng& rng, double low, double high, bool whole) {
  if (!whole) return between(rng, low, high);
  return static_cast<double>(between(rng, static_cast<std::uint64_t>(low), static_cast<std::uint64_t>(high)));
}

}  // namespace

Status ScenarioFile::add_plan(const config::TomlEntry& entry, const std::string& place) {
  if (entry.is_number && !entry.items.empty() &&
      (entry.items.size() != 2 || number_of(entry.items[0]) > number_of(entry.items[1]))) {
    return wrong(place, entry, "a number, or [low, high]");
  }
  config::TomlEntry own = entry;
  own.key.erase(0, kPlanPrefix.size());
  std::erase_if(plan_, [&](const config::TomlEntry& held) { return held.key == own.key; });
  plan_.push_back(std::move(own));
  return {};
}

Result<ScenarioFile::Range> ScenarioFile::range_of(const config::TomlEntry& entry, const std::string& place,
                                                   std::size_t key_index) {
  const ScenarioKey& key = scenario_keys()[key_index];
  if (key.kind == NumberKind::kFlag) {
    if (!entry.items.empty() || (entry.value != "true" && entry.value != "false")) {
      return wrong(place, entry, "true or false");
    }
    const double number = entry.value == "true" ? 1 : 0;
    return Range{key_index, number, number};
  }
  const std::string bounds = number_text(key.low) + " to " + number_text(key.high);
  const bool whole = key.kind == NumberKind::kWhole;
  const std::string expected = (whole ? "a whole number, " : "a number, ") + bounds + ", or [low, high] of such";
  const std::vector<std::string> items =
      entry.items.empty() ? std::vector<std::string>{entry.value, entry.value} : entry.items;
  if (!entry.is_number || items.size() != 2) return wrong(place, entry, expected);
  const Range range{key_index, number_of(items[0]), number_of(items[1])};
  const bool outside = !(range.low >= key.low) || !(range.high <= key.high) || range.low > range.high;
  if (outside || (whole && !(is_whole_text(items[0]) && is_whole_text(items[1])))) {
    return wrong(place, entry, expected);
  }
  return range;
}

Status ScenarioFile::add(const config::TomlEntry& entry) {
  const std::string place = path_ + ":" + std::to_string(entry.line) + ": ";
  if (entry.key == "name") {
    if (entry.is_number || !entry.items.empty()) return wrong(place, entry, "a text");
    name_ = entry.value;
    return {};
  }
  if (entry.key.starts_with(kPlanPrefix)) return add_plan(entry, place);
  const std::vector<ScenarioKey>& keys = scenario_keys();
  const auto found = std::ranges::find(keys, entry.key, &ScenarioKey::key);
  if (found == keys.end()) {
    const std::string near = config::closest(entry.key, known_keys());
    return Error{Code::kInvalidArgument,
                 place + "unknown key '" + entry.key + "'" + (near.empty() ? "" : ": did you mean '" + near + "'?")};
  }
  FLUVIAL_ASSIGN(const Range range, range_of(entry, place, static_cast<std::size_t>(found - keys.begin())));
  std::erase_if(ranges_, [&](const Range& held) { return held.key_index == range.key_index; });
  ranges_.push_back(range);
  return {};
}

Status ScenarioFile::set(const std::string& name, double value) {
  const std::vector<ScenarioKey>& keys = scenario_keys();
  const auto found = std::ranges::find(keys, name, &ScenarioKey::key);
  if (found == keys.end() || !(value >= found->low && value <= found->high)) {
    return Error{Code::kInvalidArgument, path_ + ": " + name + " cannot be " + number_text(value)};
  }
  const auto index = static_cast<std::size_t>(found - keys.begin());
  std::erase_if(ranges_, [&](const Range& held) { return held.key_index == index; });
  ranges_.push_back({index, value, value});
  return {};
}

// Errors in the plan's keys and values are found when the file is read, not by the first seed that draws them.
Status ScenarioFile::check_plans() const {
  std::size_t choices = 2;
  for (const config::TomlEntry& entry : plan_) choices = std::max(choices, entry.items.size());
  for (std::size_t i = 0; i < choices; ++i) {
    std::vector<config::TomlEntry> plan = plan_;
    for (config::TomlEntry& entry : plan) {
      if (!entry.items.empty()) entry.value = entry.items[std::min(i, entry.items.size() - 1)];
    }
    FLUVIAL_TRY(with_plan({}, plan));
  }
  return {};
}

Result<ScenarioFile> ScenarioFile::parse_over(std::string_view toml, const std::string& path, bool is_base) {
  FLUVIAL_ASSIGN(const std::vector<config::TomlEntry> entries, config::parse_toml(toml, path, config::Arrays::kTaken));
  ScenarioFile file;
  const auto base = std::ranges::find(entries, "base", &config::TomlEntry::key);
  if (base != entries.end()) {
    const std::string place = path + ":" + std::to_string(base->line) + ": ";
    if (is_base) return wrong(place, *base, "none: a base has no base");
    const std::string base_path = (std::filesystem::path(path).parent_path() / base->value).string();
    const Result<std::string> text = config::read_text_file(base_path);
    if (!text.ok()) return Error{Code::kInvalidArgument, place + "base: " + text.error().message};
    FLUVIAL_ASSIGN(file, parse_over(*text, base_path, true));
    file.name_.clear();
  }
  file.path_ = path;
  for (const config::TomlEntry& entry : entries) {
    if (entry.key != "base") FLUVIAL_TRY(file.add(entry));
  }
  if (file.name_.empty()) return Error{Code::kInvalidArgument, path + ": name is missing"};
  FLUVIAL_TRY(file.check_plans());
  return file;
}

Result<ScenarioFile> ScenarioFile::parse(std::string_view toml, const std::string& path) {
  return parse_over(toml, path, false);
}

Result<ScenarioFile> ScenarioFile::load(const std::string& path) {
  FLUVIAL_ASSIGN(const std::string text, config::read_text_file(path));
  return parse(text, path);
}

Result<Scenario> ScenarioFile::with_plan(Scenario scenario, const std::vector<config::TomlEntry>& plan) const {
  std::vector<config::TomlEntry> entries = plan;
  choose_optimizer(entries);
  for (config::TomlEntry& entry : entries) entry.items.clear();
  if (std::ranges::find(entries, "name", &config::TomlEntry::key) == entries.end()) {
    entries.push_back({.key = "name", .value = name_});
  }
  FLUVIAL_ASSIGN(config::PlanFile file, config::plan_of(std::move(entries), path_));
  scenario.plan = std::move(file.plan);
  return scenario;
}

Result<Scenario> ScenarioFile::draw(std::uint64_t seed) const {
  const Chance chance(seed);
  const std::vector<ScenarioKey>& keys = scenario_keys();
  Scenario scenario;
  scenario.name = name_;
  for (const Range& range : ranges_) {
    const ScenarioKey& key = keys[range.key_index];
    Rng rng = chance.stream("scenario:" + key.key);
    key.set(scenario, draw_number(rng, range.low, range.high, key.kind == NumberKind::kWhole));
  }
  for (const Range& range : ranges_) {
    const ScenarioKey& key = keys[range.key_index];
    if (key.kind != NumberKind::kFault) continue;
    Rng rng = chance.stream("off:" + key.key);
    if (happens(rng, scenario.faults.off)) key.set(scenario, 0);
  }
  std::vector<config::TomlEntry> plan = plan_;
  for (config::TomlEntry& entry : plan) {
    if (entry.items.empty()) continue;
    Rng rng = chance.stream("plan:" + entry.key);
    if (!entry.is_number) {
      entry.value = entry.items[rng.below(entry.items.size())];
    } else {
      const bool whole = is_whole_text(entry.items[0]) && is_whole_text(entry.items[1]);
      const double number = draw_number(rng, number_of(entry.items[0]), number_of(entry.items[1]), whole);
      entry.value = whole ? std::to_string(static_cast<std::uint64_t>(number)) : number_text(number);
    }
  }
  return with_plan(std::move(scenario), plan);
}

std::string scenario_markdown() {
  const Scenario defaults;
  std::string text = "| key | default | unit | meaning |\n|---|---|---|---|\n";
  for (const ScenarioKey& key : scenario_keys()) {
    const double value = key.get(defaults);
    const std::string shown = key.kind != NumberKind::kFlag ? number_text(value) : value != 0 ? "true" : "false";
    text += "| `" + key.key + "` | `" + shown + "` | " + key.unit + " | " + key.help + " |\n";
  }
  return text;
}

}  // namespace fluvial::simulator

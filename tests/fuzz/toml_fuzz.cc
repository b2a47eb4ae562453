// Plans and settings as TOML: any text, and texts of the known keys with values that are right or a little wrong. What
// is accepted keeps its rules, is written and read again as the same, and holds what toml++ alone reads for a key.
#include <toml++/toml.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/config/declaration.h"
#include "core/config/plan_file.h"
#include "core/config/reader.h"
#include "core/store/plan_json.h"
#include "tests/fuzz/errors.h"
#include "tests/fuzz/input.h"

namespace fluvial::fuzz {
namespace {

constexpr const char* kPath = "fuzz.toml";

// ---- plans -------------------------------------------------------------------------------------------------------

void check_plan(const config::PlanFile& file, std::string_view text) {
  FLUVIAL_CHECK(round::check_plan(file.plan).ok(), "a plan beyond its bounds");
  const std::string as_json = store::plan_to_json(file.plan);
  const auto from_json = store::plan_from_json(as_json);
  FLUVIAL_CHECK(from_json.ok() && *from_json == file.plan, "a plan is read again from JSON as another");
  try {
    const toml::table table = toml::parse(text);
    if (const auto name = table["name"].value<std::string>()) FLUVIAL_CHECK(*name == file.plan.name, "another name");
    if (const auto rounds = table["rounds"].value_exact<std::int64_t>()) {
      FLUVIAL_CHECK(*rounds > 0 && static_cast<std::uint64_t>(*rounds) == file.plan.rounds, "other rounds");
    }
  } catch (const toml::parse_error&) {
    FLUVIAL_CHECK(false, "a plan that is not TOML");
  }
  const auto again = config::parse_plan(config::plan_to_toml(file), kPath);
  FLUVIAL_CHECK(again.ok() && again->plan == file.plan && again->model == file.model,
                "a plan is read again as another");
}

void read_plan(std::string_view text) {
  const auto file = config::parse_plan(text, kPath);
  check_error(file);
  if (file.ok()) check_plan(*file, text);
}

void read_plan_json(std::string_view text) {
  const auto plan = store::plan_from_json(text);
  check_error(plan);
  if (!plan.ok()) return;
  FLUVIAL_CHECK(round::check_plan(*plan).ok(), "a plan beyond its bounds");
  const std::string own = store::plan_to_json(*plan);
  const auto again = store::plan_from_json(own);
  FLUVIAL_CHECK(again.ok() && *again == *plan && store::plan_to_json(*again) == own, "a plan has one text");
}

// ---- settings ----------------------------------------------------------------------------------------------------

// Every key written as it stands is what a reader of that text has.
template <typename Settings>
void check_kept(const Settings& settings) {
  Settings again;
  bool is_whole = true;
  for (const auto& setting : config::declaration<Settings>()) {
    const std::string own = setting.get(settings);
    if (own.empty() || own.size() > 1'000) {  // what is not set; a path that was made of another one
      is_whole = is_whole && own == setting.get(again);
      continue;
    }
    const Status set = setting.set(again, own);
    FLUVIAL_CHECK(set.ok(), "a setting as it stands is refused: " + setting.key);
    FLUVIAL_CHECK(setting.get(again) == own, "a setting is read again as another: " + setting.key);
  }
  FLUVIAL_CHECK(!is_whole || !config::find_conflict(again).has_value(), "settings that contradict each other");
}

template <typename Settings>
void read_settings(std::string_view text) {
  const Result<Settings> settings = config::parse_settings<Settings>(text, kPath);
  check_error(settings);
  if (settings.ok()) check_kept(*settings);
}

void read_settings_of(std::size_t role, std::string_view text) {
  if (role == 0) return read_settings<config::CoordinatorSettings>(text);
  if (role == 1) return read_settings<config::AggregatorSettings>(text);
  read_settings<config::EdgeSettings>(text);
}

// ---- texts of known keys -----------------------------------------------------------------------------------------

std::vector<std::string> keys_of(std::size_t kind) {
  std::vector<std::string> keys;
  if (kind == 3) {
    for (const config::PlanRow& row : config::describe_plan()) {
      keys.push_back(row.key.ends_with(".*") ? row.key.substr(0, row.key.size() - 1) + "rate" : row.key);
    }
    return keys;
  }
  constexpr Role kRoles[] = {Role::kCoordinator, Role::kAggregator, Role::kSite};
  for (const config::SettingInfo& info : config::describe_settings(kRoles[kind])) keys.push_back(info.key);
  return keys;
}

std::string value_of(Input& input) {
  constexpr const char* kTexts[] = {"fp32",     "topk:ratio=0.1", "127.0.0.1:7443",      ":0",   "off",  "auto",
                                    "fedadam",  "cuda:0",         "mon-fri 08:00-18:00", "none", "",     "hospital-a",
                                    "continue", "decline",        "/var/lib/fluvial",    "info", "json", "a\\nb"};
  switch (input.below(8)) {
    case 0: return std::to_string(input.byte());
    case 1: return std::to_string(input.number<std::int64_t>());
    case 2: return std::to_string(input.number<std::int16_t>()) + "." + std::to_string(input.byte());
    case 3: return input.flag() ? "true" : "false";
    case 4: return "\"" + input.text() + "\"";
    case 5: return "[" + std::to_string(input.byte()) + "]";
    case 6: return std::string(as_text(input.bytes()));
    default: return std::string("\"") + kTexts[input.below(std::size(kTexts))] + "\"";
  }
}

void made_text(Input& input) {
  const std::size_t kind = input.below(4);
  static const std::vector<std::string> kKeys[] = {keys_of(0), keys_of(1), keys_of(2), keys_of(3)};
  std::string text = kind == 3 && input.below(8) != 0 ? "name = \"fuzz\"\n" : "";
  if (kind != 3 && input.below(8) != 0) text += "data_dir = \"/var/lib/fluvial\"\n";
  if (kind != 3 && kind != 0 && input.below(8) != 0) text += "coordinator = \"127.0.0.1:7443\"\n";
  if (kind == 1 && input.below(8) != 0) text += "advertise = \"127.0.0.1:7444\"\n";
  for (std::size_t lines = input.below(12); lines > 0 && !input.done(); --lines) {
    const std::string& key = kKeys[kind][input.number<std::uint16_t>() % kKeys[kind].size()];
    text += (input.below(32) == 0 ? "\"" + input.text() + "\"" : key) + " = " + value_of(input) + "\n";
  }
  return kind == 3 ? read_plan(text) : read_settings_of(kind, text);
}

void run(ByteSpan bytes) {
  Input input(bytes);
  switch (const std::size_t reader = input.below(8)) {
    case 0: return read_plan(as_text(input.rest()));
    case 1: return read_plan_json(as_text(input.rest()));
    case 2:
    case 3:
    case 4: return read_settings_of(reader - 2, as_text(input.rest()));
    default: return made_text(input);
  }
}

}  // namespace
}  // namespace fluvial::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fluvial::fuzz::run(std::as_bytes(std::span(data, size)));
  return 0;
}

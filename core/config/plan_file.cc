#include "core/config/plan_file.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <map>
#include <utility>

#include "core/config/reader.h"
#include "core/config/setting_kinds.h"
#include "core/config/toml_file.h"

namespace fluvial::config {
namespace {

constexpr std::string_view kWorkerPrefix = "worker.";
constexpr std::uint64_t kAny = ~std::uint64_t{0};  // check_plan() has the ranges

Result<double> parse_real(std::string_view value) {
  double number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc{} || end != value.data() + value.size() || value.empty()) return expected("a number");
  return number;
}

template <typename Field>
void real(Declare<PlanFile>& declare, std::string key, std::string unit, Field field, std::string help) {
  const auto set = [field](PlanFile& file, std::string_view value) -> Status {
    FLUVIAL_ASSIGN(field(file), parse_real(value));
    return {};
  };
  declare.add(std::move(key), std::move(unit), std::move(help), false, set,
              [field](const PlanFile& file) { return format_number(field(file)); });
}

template <typename Field>
void deadline(Declare<PlanFile>& declare, std::string key, Field field, std::string help) {
  const auto set = [field](PlanFile& file, std::string_view value) -> Status {
    FLUVIAL_ASSIGN(const std::uint64_t ms, parse_milliseconds(value));
    if (ms > std::uint64_t{1} << 40) return expected("at most a day");
    field(file) = round::Milliseconds(static_cast<std::int64_t>(ms));
    return {};
  };
  declare.add(std::move(key), "ms", std::move(help), false, set,
              [field](const PlanFile& file) { return std::to_string(field(file).count()); });
}

template <typename Field>
void small_count(Declare<PlanFile>& declare, std::string key, Field field, std::string help) {
  const auto set = [field](PlanFile& file, std::string_view value) -> Status {
    FLUVIAL_ASSIGN(const std::uint64_t number, Declare<PlanFile>::parse_count(value));
    if (number > 0xffff'ffff) return expected("0 to 4294967295");
    field(file) = static_cast<std::uint32_t>(number);
    return {};
  };
  declare.add(std::move(key), "count", std::move(help), false, set,
              [field](const PlanFile& file) { return std::to_string(field(file)); });
}

template <typename Field>
void flag(Declare<PlanFile>& declare, std::string key, Field field, std::string help) {
  const auto set = [field](PlanFile& file, std::string_view value) -> Status {
    if (value != "true" && value != "false") return expected("true or false");
    field(file) = value == "true";
    return {};
  };
  declare.add(std::move(key), "true or false", std::move(help), false, set,
              [field](const PlanFile& file) { return std::string(field(file) ? "true" : "false"); });
}

void declare_top(Declare<PlanFile>& declare) {
  declare.text("name", "text", FLUVIAL_FIELD(plan.name), "what people call the run", true);
  declare.text("model", "path", FLUVIAL_FIELD(model),
               "the safetensors file to start from; relative to the plan's folder");
  declare.count("rounds", 0, kAny, FLUVIAL_FIELD(plan.rounds), "committed rounds after which the run is done");
  declare.count("local_steps", 0, kAny, FLUVIAL_FIELD(plan.local_steps),
                "steps a worker takes between two synchronisations; 1: synchronous SGD");
  declare.text("codec", "text", FLUVIAL_FIELD(plan.codec),
               "of the sites' updates, with options (codecs.md): fp32, bf16, int8, sign, topk:ratio=0.05, ...");
  declare.count("chunk_values", 0, kAny, FLUVIAL_FIELD(plan.chunk_values),
                "coordinates a chunk, the unit of streaming");
  small_count(declare, "fraction_bits", FLUVIAL_FIELD(plan.fraction_bits),
              "at most so many bits behind the point in the integer sum; fewer make partials narrower");
  real(declare, "value_abs_max", "value", FLUVIAL_FIELD(plan.value_abs_max),
       "an update that holds a larger value is refused");
  real(declare, "update_norm_max", "2-norm", FLUVIAL_FIELD(plan.update_norm_max),
       "an update with a larger norm is refused; 0: no bound");
  small_count(declare, "attempts_max", FLUVIAL_FIELD(plan.attempts_max), "attempts of a round before the run pauses");
  declare.count("models_kept", 0, kAny, FLUVIAL_FIELD(plan.models_kept), "newest committed model files kept on disk");
  declare.count("seed", 0, kAny, FLUVIAL_FIELD(plan.seed), "of the sampling of participants");
  flag(declare, "sum_digest", FLUVIAL_FIELD(plan.sum_digest),
       "record the SHA-256 of each committed integer sum, for audits");
}

void declare_tables(Declare<PlanFile>& declare) {
  real(declare, "participants.fraction", "fraction", FLUVIAL_FIELD(plan.participants_fraction),
       "of the connected sites, sampled anew each round");
  declare.count("participants.min", 0, kAny, FLUVIAL_FIELD(plan.participants_min),
                "connected sites that a round waits for");
  declare.count("participants.quorum", 0, kAny, FLUVIAL_FIELD(plan.quorum),
                "contributions without which nothing is committed");
  declare.count("participants.weight_min", 0, kAny, FLUVIAL_FIELD(plan.weight_min), "likewise, their total weight");
  deadline(declare, "deadlines.soft_ms", FLUVIAL_FIELD(plan.soft_deadline),
           "from here on a quorum is enough to commit");
  flag(declare, "deadlines.adaptive", FLUVIAL_FIELD(plan.adaptive_deadlines),
       "the soft deadline comes earlier when the sites' history says that whoever is typical is in");
  deadline(declare, "deadlines.soft_min_ms", FLUVIAL_FIELD(plan.soft_deadline_min), "but never before this");
  deadline(declare, "deadlines.hard_ms", FLUVIAL_FIELD(plan.hard_deadline), "here the attempt ends");
  declare.add(
      "optimizer.name", "text", "the server optimizer, with options as in `fedadam:lr=0.02,warmup=5` (below)", false,
      [](PlanFile& file, std::string_view value) -> Status {
        FLUVIAL_ASSIGN(file.plan.optimizer, round::parse_server_optimizer(value));
        return {};
      },
      [](const PlanFile& file) { return std::string(round::optimizer_name(file.plan.optimizer.kind)); });
  real(declare, "optimizer.learning_rate", "factor", FLUVIAL_FIELD(plan.optimizer.lr),
       "of the server's step; other optimizers have another default (below)");
  real(declare, "optimizer.momentum", "factor", FLUVIAL_FIELD(plan.optimizer.momentum), "fedavgm, nesterov, lars");
  declare.add(
      "workers.missing", "text",
      "when a site's worker dies, fails or hangs: `continue` with the others, or `decline` the round", false,
      [](PlanFile& file, std::string_view value) -> Status {
        FLUVIAL_ASSIGN(file.plan.workers_missing, round::missing_workers_from_name(value));
        return {};
      },
      [](const PlanFile& file) { return std::string(round::missing_workers_name(file.plan.workers_missing)); });
  deadline(declare, "workers.deadline_ms", FLUVIAL_FIELD(plan.workers_deadline),
           "for a worker's answer, where that is less than the site's own worker_task_deadline_ms; 0: the site's own");
  real(declare, "residual.norm_max", "2-norm", FLUVIAL_FIELD(plan.residual_norm_max),
       "a site drops a larger residual, and counts that; 0: no bound");
  declare.count("residual.age_max_rounds", 0, kAny, FLUVIAL_FIELD(plan.residual_age_max_rounds),
                "a site drops a residual unspent for more rounds, and counts that; 0: no bound");
}

const Setting<PlanFile>* find_key(std::string_view key) {
  for (const Setting<PlanFile>& setting : plan_declaration()) {
    if (setting.key == key) return &setting;
  }
  return nullptr;
}

std::vector<std::string> known_keys() {
  std::vector<std::string> keys;
  for (const Setting<PlanFile>& setting : plan_declaration()) keys.push_back(setting.key);
  return keys;
}

Status apply(PlanFile& file, const TomlEntry& entry, const std::string& place) {
  const Error bad_value{Code::kInvalidArgument, place + entry.key + " = '" + entry.value + "': "};
  if (entry.key.starts_with(kWorkerPrefix)) {
    const Result<double> number = parse_real(entry.value);
    if (!entry.is_number || !number.ok()) return Error{bad_value.code, bad_value.message + "expected a number"};
    file.plan.worker[entry.key.substr(kWorkerPrefix.size())] = *number;
    return {};
  }
  const Setting<PlanFile>* setting = find_key(entry.key);
  if (setting == nullptr) {
    const std::string near = closest(entry.key, known_keys());
    return Error{Code::kInvalidArgument,
                 place + "unknown key '" + entry.key + "'" + (near.empty() ? "" : ": did you mean '" + near + "'?")};
  }
  const Status status = setting->set(file, entry.value);
  if (!status.ok()) return Error{bad_value.code, bad_value.message + status.error().message};
  return {};
}

}  // namespace

const std::vector<Setting<PlanFile>>& plan_declaration() {
  static const std::vector<Setting<PlanFile>> settings = [] {
    std::vector<Setting<PlanFile>> list;
    Declare<PlanFile> declare(list);
    declare_top(declare);
    declare_tables(declare);
    return list;
  }();
  return settings;
}

Result<PlanFile> parse_plan(std::string_view toml, const std::string& path) {
  FLUVIAL_ASSIGN(std::vector<TomlEntry> entries, parse_toml(toml, path));
  return plan_of(std::move(entries), path);
}

Result<PlanFile> plan_of(std::vector<TomlEntry> entries, const std::string& path) {
  PlanFile file;
  std::map<std::string, std::string, std::less<>> places;
  // The optimizer's name first: it sets defaults, which other keys change.
  const auto name = std::ranges::find(entries, "optimizer.name", &TomlEntry::key);
  if (name != entries.end()) std::rotate(entries.begin(), name, name + 1);
  for (const TomlEntry& entry : entries) {
    const std::string place = path + ":" + std::to_string(entry.line) + ": ";
    places[entry.key] = place;
    FLUVIAL_TRY(apply(file, entry, place));
  }
  if (!places.contains("name")) return Error{Code::kInvalidArgument, path + ": name is missing"};
  const Status status = round::check_plan(file.plan);
  if (!status.ok()) {
    // check_plan() starts with the key: find the line that set it.
    const std::string& message = status.error().message;
    const auto place = places.find(message.substr(0, message.find(" = ")));
    return Error{Code::kInvalidArgument, (place == places.end() ? path + ": " : place->second) + message};
  }
  if (!file.model.empty()) {
    const std::filesystem::path model(file.model);
    if (model.is_relative()) file.model = (std::filesystem::path(path).parent_path() / model).string();
  }
  return file;
}

Result<PlanFile> load_plan(const std::string& path) {
  FLUVIAL_ASSIGN(const std::string text, read_text_file(path));
  return parse_plan(text, path);
}

std::vector<PlanKey> describe_plan() {
  const PlanFile defaults;
  std::vector<PlanKey> keys;
  for (const Setting<PlanFile>& setting : plan_declaration()) {
    keys.push_back({setting.key, setting.required ? "(required)" : setting.get(defaults), setting.unit, setting.help});
  }
  keys.push_back({"worker.*", "", "number", "any number, handed to the workers as it is"});
  return keys;
}

std::string plan_markdown() {
  std::string text = "| key | default | unit | meaning |\n|---|---|---|---|\n";
  for (const PlanKey& key : describe_plan()) {
    const bool required = key.default_value == "(required)";
    const std::string shown = key.default_value.empty() ? "(none)" : "`" + key.default_value + "`";
    text += "| `" + key.key + "` | " + (required ? "required" : shown) + " | " + key.unit + " | " + key.help + " |\n";
  }
  return text;
}

}  // namespace fluvial::config

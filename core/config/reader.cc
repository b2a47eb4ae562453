#include "core/config/reader.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <cstdlib>
#include <deque>
#include <utility>

#include "core/base/printable.h"
#include "core/config/declaration.h"
#include "core/config/toml_file.h"

namespace fluvial::config {
namespace {

constexpr const char* kConfigVariable = "FLUVIAL_CONFIG";

// Levenshtein, "Binary codes capable of correcting deletions, insertions, and reversals", 1966; one row at a time.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& known) {
  const std::string near = closest(word, known);
  return near.empty() ? "" : ": did you mean '" + near + "'?";
}

struct Given {
  std::string value;
  std::string source;  // "coordinator.toml:12: listen", "--listen", "FLUVIAL_LISTEN"
};
using GivenByKey = std::map<std::string, Given>;

Error refuse(const Given& given, const std::string& expectation) {
  return {Code::kInvalidArgument, given.source + " = '" + printable(given.value, 80) + "': " + expectation};
}

void finalise(CoordinatorSettings& settings) {
  if (settings.admin_socket.empty()) settings.admin_socket = settings.data_dir + "/admin.sock";
  if (settings.worker_socket.empty()) settings.worker_socket = settings.data_dir + "/worker.sock";
}
void finalise(AggregatorSettings&) {}
void finalise(EdgeSettings& settings) {
  if (settings.worker_socket.empty()) settings.worker_socket = settings.data_dir + "/worker.sock";
}

template <typename Settings>
Status read_entries_into(GivenByKey& given, const std::vector<TomlEntry>& entries, const std::string& path) {
  std::vector<std::string> known;
  for (const auto& setting : declaration<Settings>()) known.push_back(setting.key);
  for (const TomlEntry& entry : entries) {
    const std::string place = path + (entry.line == 0 ? "" : ":" + std::to_string(entry.line)) + ": ";
    if (std::find(known.begin(), known.end(), entry.key) == known.end()) {
      return Error{Code::kInvalidArgument,
                   place + "unknown key '" + printable(entry.key, 80) + "'" + did_you_mean(entry.key, known)};
    }
    given[entry.key] = {entry.value, place + entry.key};
  }
  return {};
}

template <typename Settings>
Status read_file_into(GivenByKey& given, const std::string& path) {
  FLUVIAL_ASSIGN(const std::vector<TomlEntry> entries, read_toml(path));
  return read_entries_into<Settings>(given, entries, path);
}

// Sets a key that is not given but follows from another one.
void follow(const GivenByKey&, CommonSettings&) {}
void follow(const GivenByKey& given, AggregatorSettings& settings) {
  const Result<HostPort> told = parse_host_port(settings.advertise);
  if (given.contains("listen") || !told.ok() || told->port == 0) return;
  settings.listen = format_host_port({"0.0.0.0", told->port});
}

template <typename Settings>
Result<Settings> build(const GivenByKey& given) {
  Settings settings;
  for (const Setting<Settings>& setting : declaration<Settings>()) {
    const auto found = given.find(setting.key);
    if (found != given.end() && !(found->second.value.empty() && setting.required)) {
      const Status status = setting.set(settings, found->second.value);
      if (!status.ok()) return refuse(found->second, status.error().message);
    } else if (setting.required) {
      return Error{Code::kInvalidArgument, setting.key + " is missing: give " + flag_of(setting.key) + ", " +
                                               env_of(setting.key) + " or " + setting.key + " in the file (" +
                                               setting.unit + ": " + setting.help + ")"};
    }
  }
  follow(given, settings);
  finalise(settings);
  if (const auto conflict = find_conflict(settings)) {
    const auto found = given.find(conflict->key);
    const Given source = found != given.end() ? found->second : Given{conflict->value, conflict->key + " (default)"};
    return refuse(source, "expected " + conflict->expected);
  }
  return settings;
}

template <typename Settings>
void append_info(std::vector<SettingInfo>& infos) {
  const Settings defaults;
  for (const Setting<Settings>& setting : declaration<Settings>()) {
    infos.push_back({setting.key, flag_of(setting.key), env_of(setting.key),
                     setting.required ? "(required)" : setting.get(defaults), setting.unit, setting.help});
  }
}

std::string table_of(const std::string& title, std::span<const SettingInfo> infos) {
  std::string text = "## " + title + "\n\n| key | default | unit | meaning |\n|---|---|---|---|\n";
  for (const SettingInfo& info : infos) {
    const std::string shown = info.default_value.empty() ? "(empty)" : "`" + info.default_value + "`";
    text += "| `" + info.key + "` | " + (info.default_value == "(required)" ? "required" : shown) + " | " + info.unit +
            " | " + info.help + " |\n";
  }
  return text;
}

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  };
}

std::string closest(std::string_view word, std::span<const std::string> known) {
  const std::string* best = nullptr;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const std::size_t distance = edit_distance(word.substr(0, 128), candidate);
    if (distance < best_distance) {
      best = &candidate;
      best_distance = distance;
    }
  }
  return best == nullptr ? "" : *best;
}

std::vector<SettingInfo> describe_settings(Role role) {
  std::vector<SettingInfo> infos;
  switch (role) {
    case Role::kCoordinator: append_info<CoordinatorSettings>(infos); break;
    case Role::kAggregator: append_info<AggregatorSettings>(infos); break;
    case Role::kSite: append_info<EdgeSettings>(infos); break;
    case Role::kOperator: break;
  }
  return infos;
}

std::vector<std::string> setting_variables() {
  std::vector<std::string> names = {kConfigVariable};
  for (const Role role : {Role::kCoordinator, Role::kAggregator, Role::kSite}) {
    for (const SettingInfo& info : describe_settings(role)) names.push_back(info.env);
  }
  return names;
}

std::string settings_markdown() {
  const std::size_t common = common_settings_count();
  const std::vector<SettingInfo> coordinator = describe_settings(Role::kCoordinator);
  const std::vector<SettingInfo> aggregator = describe_settings(Role::kAggregator);
  const std::vector<SettingInfo> edge = describe_settings(Role::kSite);
  return table_of("Every process", std::span(edge).first(common)) + "\n" +
         table_of("Coordinator", std::span(coordinator).subspan(common)) + "\n" +
         table_of("Aggregator", std::span(aggregator).subspan(common)) + "\n" +
         table_of("Edge", std::span(edge).subspan(common));
}

template <typename Settings>
struct SettingsReader<Settings>::Impl {
  struct Flag {
    std::string key;
    CLI::Option* option = nullptr;
  };
  std::deque<std::string> values;  // CLI11 writes here: addresses stay
  std::vector<Flag> flags;
  std::string config;
};

template <typename Settings>
SettingsReader<Settings>::SettingsReader() : impl_(std::make_unique<Impl>()) {}
template <typename Settings>
SettingsReader<Settings>::~SettingsReader() = default;

template <typename Settings>
void SettingsReader<Settings>::declare(CLI::App& app) {
  app.add_option("--config", impl_->config, "a TOML file of these settings (FLUVIAL_CONFIG)")->type_name("FILE");
  const Settings defaults;
  for (const Setting<Settings>& setting : declaration<Settings>()) {
    const std::string shown = setting.required ? "" : setting.get(defaults);
    CLI::Option* option = app.add_option(flag_of(setting.key), impl_->values.emplace_back(),
                                         setting.help + (shown.empty() ? "" : " [" + shown + "]"));
    option->type_name(setting.unit);
    impl_->flags.push_back({setting.key, option});
  }
}

template <typename Settings>
Result<Settings> SettingsReader<Settings>::read(const Environment& environment) const {
  GivenByKey given;
  std::string config = impl_->config;
  if (config.empty()) config = environment(kConfigVariable).value_or("");
  if (!config.empty()) FLUVIAL_TRY(read_file_into<Settings>(given, config));
  for (const Setting<Settings>& setting : declaration<Settings>()) {
    const std::string name = env_of(setting.key);
    if (const auto value = environment(name)) given[setting.key] = {*value, name};
  }
  for (std::size_t i = 0; i < impl_->flags.size(); ++i) {
    const auto& flag = impl_->flags[i];
    if (flag.option->count() > 0) given[flag.key] = {impl_->values[i], flag_of(flag.key)};
  }
  return build<Settings>(given);
}

template <typename Settings>
Result<Settings> read_settings(const std::vector<std::string>& arguments, const Environment& environment) {
  CLI::App app;
  SettingsReader<Settings> reader;
  reader.declare(app);
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // as CLI11 takes them
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::ExtrasError&) {
    std::vector<std::string> known = {"--config"};
    for (const auto& setting : declaration<Settings>()) known.push_back(flag_of(setting.key));
    const std::vector<std::string> extras = app.remaining();
    const std::string word = extras.empty() ? "" : extras.front().substr(0, extras.front().find('='));
    return Error{Code::kInvalidArgument, "unknown argument '" + printable(word, 80) + "'" + did_you_mean(word, known)};
  } catch (const CLI::Error& error) {
    return Error{Code::kInvalidArgument, error.what()};
  }
  return reader.read(environment);
}

template <typename Settings>
Result<Settings> parse_settings(std::string_view toml, const std::string& path) {
  FLUVIAL_ASSIGN(const std::vector<TomlEntry> entries, parse_toml(toml, path));
  GivenByKey given;
  FLUVIAL_TRY(read_entries_into<Settings>(given, entries, path));
  return build<Settings>(given);
}

template class SettingsReader<CoordinatorSettings>;
template class SettingsReader<AggregatorSettings>;
template class SettingsReader<EdgeSettings>;
template Result<CoordinatorSettings> read_settings(const std::vector<std::string>&, const Environment&);
template Result<AggregatorSettings> read_settings(const std::vector<std::string>&, const Environment&);
template Result<EdgeSettings> read_settings(const std::vector<std::string>&, const Environment&);
template Result<CoordinatorSettings> parse_settings(std::string_view, const std::string&);
template Result<AggregatorSettings> parse_settings(std::string_view, const std::string&);
template Result<EdgeSettings> parse_settings(std::string_view, const std::string&);

}  // namespace fluvial::config

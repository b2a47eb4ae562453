// From flags, FLUVIAL_* environment and a TOML file to validated settings. Precedence: flag, environment, file,
// default.
//
//   SettingsReader<CoordinatorSettings> reader;
//   reader.declare(*app.add_subcommand("coordinator", ...));   // before app.parse()
//   auto settings = reader.read(process_environment());        // after it
//
// Every error is one line that names the source (file and line, flag, or variable), key, value and what was expected;
// callers print it and exit with status 2.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/ids.h"
#include "core/config/settings.h"

namespace CLI {
class App;
}

namespace fluvial::config {

using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment process_environment();

// One setting, as data.
struct SettingInfo {
  std::string key;            // "session.heartbeat_interval_ms": [session] heartbeat_interval_ms in TOML
  std::string flag;           // "--session-heartbeat-interval-ms"
  std::string env;            // "FLUVIAL_SESSION_HEARTBEAT_INTERVAL_MS"
  std::string default_value;  // as a file would write it
  std::string unit;           // "ms", "bytes", "count", "path", "host:port", "text"
  std::string help;
};
std::vector<SettingInfo> describe_settings(Role role);  // kSite: the edge
// Every variable that read() asks for, of any role.
std::vector<std::string> setting_variables();
// The tables in docs/operations/settings.md; a test compares them (FLUVIAL_UPDATE_DOCS=1 writes them).
std::string settings_markdown();

template <typename Settings>
class SettingsReader {
 public:
  SettingsReader();
  ~SettingsReader();
  void declare(CLI::App& app);  // one flag a setting, and --config FILE (FLUVIAL_CONFIG)
  Result<Settings> read(const Environment& environment) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};
extern template class SettingsReader<CoordinatorSettings>;
extern template class SettingsReader<AggregatorSettings>;
extern template class SettingsReader<EdgeSettings>;

// All in one, for tests and for embedding: arguments without the program's name.
template <typename Settings>
Result<Settings> read_settings(const std::vector<std::string>& arguments, const Environment& environment);
extern template Result<CoordinatorSettings> read_settings(const std::vector<std::string>&, const Environment&);
extern template Result<AggregatorSettings> read_settings(const std::vector<std::string>&, const Environment&);
extern template Result<EdgeSettings> read_settings(const std::vector<std::string>&, const Environment&);

// From the text of a file alone; `path` names it in messages.
template <typename Settings>
Result<Settings> parse_settings(std::string_view toml, const std::string& path);
extern template Result<CoordinatorSettings> parse_settings(std::string_view, const std::string&);
extern template Result<AggregatorSettings> parse_settings(std::string_view, const std::string&);
extern template Result<EdgeSettings> parse_settings(std::string_view, const std::string&);

// The nearest of `known` by edit distance, or "" when none is near. For "did you mean".
std::string closest(std::string_view word, std::span<const std::string> known);

}  // namespace fluvial::config

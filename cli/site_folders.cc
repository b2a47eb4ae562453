#include "cli/site_folders.h"

#include <fmt/format.h>

#include <set>
#include <utility>

namespace fluvial::cli {

Result<std::vector<config::EdgeSettings>> read_site_folders(const std::string& folder,
                                                            const config::SettingsReader<config::EdgeSettings>& reader,
                                                            const config::Environment& environment,
                                                            store::FileSystem& files) {
  FLUVIAL_ASSIGN(const std::vector<std::string> names, files.list(folder));
  std::vector<config::EdgeSettings> sites;
  std::set<std::string> taken;
  for (const std::string& name : names) {
    const std::string path = store::join_path(store::join_path(folder, name), "edge.toml");
    const Result<bool> there = files.exists(path);
    if (!there.ok() || !*there) continue;  // a log, the process' own notes
    FLUVIAL_ASSIGN(config::EdgeSettings settings, reader.read([&](const std::string& variable) {
      if (variable == "FLUVIAL_CONFIG") return std::optional(path);
      // Of one site alone: no two can have the same.
      if (variable == "FLUVIAL_DATA_DIR" || variable == "FLUVIAL_WORKER_SOCKET") return std::optional<std::string>();
      return environment(variable);
    }));
    for (const std::string& own : {settings.data_dir, settings.worker_socket}) {
      if (taken.insert(own).second) continue;
      return Error{Code::kInvalidArgument, fmt::format("{}: another site in {} has {}, too", path, folder, own)};
    }
    sites.push_back(std::move(settings));
  }
  if (!sites.empty()) return sites;
  return Error{Code::kNotFound,
               fmt::format("{} has no folder with an edge.toml in it; enrol each site into a folder of "
                           "its own there: fluvial enroll --data-dir {}/NAME",
                           folder, folder)};
}

}  // namespace fluvial::cli

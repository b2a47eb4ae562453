// The settings of many sites that share a process: `fluvial edge --sites FOLDER`.
#pragma once

#include <string>
#include <vector>

#include "core/config/reader.h"
#include "core/store/file_system.h"

namespace fluvial::cli {

// Of each folder in `folder` that `fluvial enroll` made a site's, by name: what stands in its edge.toml, and over that
// what variables and `reader`'s flags say of all of them. kNotFound: there is none; kInvalidArgument: one of the files
// is not right, or two of the sites would share a folder or a socket.
Result<std::vector<config::EdgeSettings>> read_site_folders(const std::string& folder,
                                                            const config::SettingsReader<config::EdgeSettings>& reader,
                                                            const config::Environment& environment,
                                                            store::FileSystem& files);

}  // namespace fluvial::cli

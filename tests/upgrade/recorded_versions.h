// "0.2", "0.3", ...: the versions that have fixtures, of the folder FLUVIAL_FIXTURES.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace fluvial::upgrade {

inline std::vector<std::string> recorded_versions() {
  std::vector<std::string> versions;
  for (const auto& entry : std::filesystem::directory_iterator(FLUVIAL_FIXTURES)) {
    if (entry.is_directory()) versions.push_back(entry.path().filename().string());
  }
  std::ranges::sort(versions);
  return versions;
}

}  // namespace fluvial::upgrade

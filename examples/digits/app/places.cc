#include "examples/digits/app/places.h"

#include <fmt/format.h>

#include <cstdlib>

namespace fluvial::digits {

Result<std::filesystem::path> find_data(const std::string& given) {
  if (!given.empty()) return std::filesystem::path(given);
  const char* const environment = std::getenv("FLUVIAL_DIGITS");
  if (environment != nullptr && *environment != '\0') return std::filesystem::path(environment);

  std::error_code error;
  const std::filesystem::path executable = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return Error{Code::kNotFound, fmt::format("/proc/self/exe: {}", error.message())};
  const std::filesystem::path folder = executable.parent_path();
  const auto installed = (folder / "../share/fluvial/digits.csv.gz").lexically_normal();
  const auto in_source_tree = (folder / "../../../examples/digits/digits.csv.gz").lexically_normal();
  for (const auto& path : {installed, in_source_tree}) {
    if (std::filesystem::exists(path, error)) return path;
  }
  return Error{Code::kNotFound, fmt::format("no images at {} or {}; name them with --data or $FLUVIAL_DIGITS",
                                            installed.native(), in_source_tree.native())};
}

}  // namespace fluvial::digits

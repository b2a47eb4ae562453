// The tree's text files, as the checks read them.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace fluvial::house {

struct Finding {
  std::string path;      // from the root
  std::size_t line = 0;  // from 1; 0: of the file as a whole
  std::string what;
  bool operator==(const Finding&) const = default;
};
std::string to_string(const Finding& finding);  // path:line: what
std::string to_string(const std::vector<Finding>& findings);

struct TextFile {
  std::string path;  // from the root, with /
  std::string text;
};

struct Tree {
  std::vector<TextFile> texts;       // sources, build files, scripts, documentation
  std::vector<Finding> large_files;  // of any kind
};

inline constexpr std::uintmax_t kFileBytesMax = 1 << 20;

// Everything under `root` but build folders and hidden ones (.ci is read).
Tree read_tree(const std::filesystem::path& root);

bool is_source(std::string_view path);  // C++, CUDA and protobuf
std::string folder_of(std::string_view path);
std::vector<std::string_view> lines_of(std::string_view text);

}  // namespace fluvial::house

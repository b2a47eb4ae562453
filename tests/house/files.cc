#include "tests/house/files.h"

#include <algorithm>
#include <array>

#include "core/base/testing.h"

namespace fluvial::house {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 5> kSourceEndings = {".h", ".cc", ".cu", ".cuh", ".proto"};
constexpr std::array<std::string_view, 12> kOtherEndings = {".md",   ".txt", ".cmake", ".py",   ".sh",  ".toml",
                                                            ".yaml", ".yml", ".in",    ".html", ".css", ".js"};
constexpr std::array<std::string_view, 2> kScripts = {"dev", "run"};

template <std::size_t N>
bool ends_with_one_of(std::string_view path, const std::array<std::string_view, N>& endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [path](std::string_view ending) { return path.ends_with(ending); });
}

bool is_left_out(const fs::path& folder) {
  const std::string name = folder.filename().string();
  return name == "build" || name == "node_modules" || name == "__pycache__" || (name.starts_with('.') && name != ".ci");
}

bool is_text(const fs::path& path) {
  const std::string name = path.filename().string();
  return is_source(name) || ends_with_one_of(name, kOtherEndings) ||
         std::find(kScripts.begin(), kScripts.end(), name) != kScripts.end();
}

}  // namespace

std::string to_string(const Finding& finding) {
  return finding.path + ":" + (finding.line == 0 ? "" : std::to_string(finding.line) + ":") + " " + finding.what;
}

std::string to_string(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) text += to_string(finding) + "\n";
  return text;
}

bool is_source(std::string_view path) { return ends_with_one_of(path, kSourceEndings); }

std::string folder_of(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? "" : path.substr(0, slash));
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

Tree read_tree(const fs::path& root) {
  Tree tree;
  for (fs::recursive_directory_iterator at(root), end; at != end; ++at) {
    if (at->is_directory()) {
      if (is_left_out(at->path())) at.disable_recursion_pending();
      continue;
    }
    if (!at->is_regular_file() || at->is_symlink()) continue;
    const std::string path = at->path().lexically_relative(root).generic_string();
    if (at->file_size() > kFileBytesMax) {
      tree.large_files.push_back({path, 0, "is larger than 1 MiB"});
    } else if (is_text(at->path())) {
      tree.texts.push_back({path, text_of_file(at->path())});
    }
  }
  std::sort(tree.texts.begin(), tree.texts.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  return tree;
}

}  // namespace fluvial::house

#include "tests/house/tidy.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>

namespace fluvial::house {
namespace {

// A note such as "TO-DO: wait for X" says what for; the bare word does not. Written apart, not to find itself.
const std::regex& bare_note() {
  static const std::regex pattern(std::string("\\b(TO") + "DO|FIX" + "ME|XX" + "X)\\b(?!(\\([^)]*\\))?: *\\S+ +\\S+)");
  return pattern;
}

std::string without_code(std::string_view line) {
  std::string text;
  bool in_code = false;
  for (const char c : line) {
    if (c == '`') {
      in_code = !in_code;
    } else if (!in_code) {
      text += c;
    }
  }
  return text;
}

std::string normal(const std::string& path) { return std::filesystem::path(path).lexically_normal().generic_string(); }

void check_markdown_links(const TextFile& file, const Exists& exists, std::vector<Finding>& findings) {
  static const std::regex link(R"(\]\(([^)\s#]+)(#[^)\s]*)?\))");
  std::size_t number = 0;
  bool in_block = false;
  for (const std::string_view line : lines_of(file.text)) {
    ++number;
    if (line.starts_with("```")) in_block = !in_block;
    if (in_block) continue;
    const std::string text = without_code(line);
    for (std::sregex_iterator at(text.begin(), text.end(), link), end; at != end; ++at) {
      const std::string target = (*at)[1];
      if (target.find("://") != std::string::npos || target.starts_with("mailto:")) continue;
      const std::string folder = folder_of(file.path);
      const std::string path =
          normal(target.starts_with('/') ? target.substr(1) : folder + (folder.empty() ? "" : "/") + target);
      if (!exists(path)) findings.push_back({file.path, number, "the link to " + target + " leads nowhere"});
    }
  }
}

void check_pages(const TextFile& file, const Exists& exists, std::vector<Finding>& findings) {
  static const std::regex page(R"(\bdocs/[a-z0-9_/.-]+\.md\b)");
  std::size_t number = 0;
  for (const std::string_view line : lines_of(file.text)) {
    ++number;
    for (std::regex_iterator<std::string_view::const_iterator> at(line.begin(), line.end(), page), end; at != end;
         ++at) {
      if (!exists(at->str())) findings.push_back({file.path, number, at->str() + " is not there"});
    }
  }
}

// Raw strings hold anything at the start of a line. They are told by R"NAME( and )NAME".
class RawString {
 public:
  // Whether the line begins inside one.
  bool take(std::string_view line) {
    const bool inside = !end_.empty();
    if (inside) {
      if (line.find(end_) != std::string_view::npos) end_.clear();
      return true;
    }
    if (line.find("R\"") == std::string_view::npos) return false;
    static const std::regex begin(R"re(R"([A-Za-z_]{0,16})\()re");
    std::match_results<std::string_view::const_iterator> found;
    if (!std::regex_search(line.begin(), line.end(), found, begin)) return false;
    const std::string end = ")" + found.str(1) + "\"";
    if (found.suffix().str().find(end) == std::string::npos) end_ = end;
    return false;
  }

 private:
  std::string end_;  // of the one that is open
};

}  // namespace

std::vector<Finding> check_functions(const TextFile& file) {
  std::vector<Finding> findings;
  std::map<std::size_t, std::size_t> begun;  // indentation: the last line that stands there
  RawString raw;
  std::size_t number = 0;
  for (const std::string_view line : lines_of(file.text)) {
    ++number;
    if (raw.take(line)) continue;
    const std::size_t indent = line.find_first_not_of(' ');
    if (indent == std::string_view::npos || line[indent] == '#' || line.substr(indent).starts_with("//")) continue;
    const auto first = begun.find(indent);
    if (line.substr(indent) == "}" && first != begun.end() && number - first->second >= kFunctionLinesMax) {
      findings.push_back({file.path, first->second,
                          "a function of " + std::to_string(number - first->second + 1) + " lines, at most " +
                              std::to_string(kFunctionLinesMax)});
    }
    begun[indent] = number;
  }
  return findings;
}

std::vector<Finding> check_text(const TextFile& file) {
  std::vector<Finding> findings;
  const std::vector<std::string_view> lines = lines_of(file.text);
  if (lines.size() > kLinesMax) {
    findings.push_back({file.path, 0,
                        std::to_string(lines.size()) + " lines, at most " + std::to_string(kLinesMax) +
                            ": it usually holds two ideas"});
  }
  if (!file.text.empty() && file.text.back() != '\n') findings.push_back({file.path, lines.size(), "no end of line"});
  std::size_t number = 0;
  for (const std::string_view line : lines) {
    ++number;
    if (line.find('\t') != std::string_view::npos) findings.push_back({file.path, number, "a tab"});
    if (!line.empty() && (line.back() == ' ' || line.back() == '\r')) {
      findings.push_back({file.path, number, "blanks at the end"});
    }
    if (std::regex_search(line.begin(), line.end(), bare_note())) {
      findings.push_back({file.path, number, "a note for later without a reason"});
    }
  }
  return findings;
}

std::vector<Finding> check_links(const TextFile& file, const Exists& exists) {
  std::vector<Finding> findings;
  if (file.path.ends_with(".md")) check_markdown_links(file, exists, findings);
  check_pages(file, exists, findings);
  return findings;
}

std::vector<Finding> check_readmes(const std::vector<std::string>& folders, const Exists& exists) {
  std::vector<Finding> findings;
  for (const std::string& folder : folders) {
    const std::string above = folder_of(folder);
    if (exists(folder + "/README.md") || (!above.empty() && exists(above + "/README.md"))) continue;
    findings.push_back({folder, 0, "has no README.md"});
  }
  return findings;
}

}  // namespace fluvial::house

#include "tests/house/names.h"

#include <algorithm>
#include <regex>
#include <string>
#include <string_view>

namespace fluvial::house {
namespace {

bool is_of_name(char c) {
  return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool has_word(std::string_view text, std::string_view word) {
  for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || !is_of_name(text[at - 1])) && (end == text.size() || !is_of_name(text[end]))) return true;
  }
  return false;
}

// Of `A::b` both, wherever: a header has them apart.
bool has_all_words(std::string_view text, std::string_view name) {
  while (!name.empty()) {
    const std::size_t end = std::min(name.find("::"), name.size());
    if (!has_word(text, name.substr(0, end))) return false;
    name.remove_prefix(std::min(end + 2, name.size()));
  }
  return true;
}

const TextFile* find(const Tree& tree, std::string_view path) {
  const auto found = std::ranges::find(tree.texts, path, &TextFile::path);
  return found == tree.texts.end() ? nullptr : &*found;
}

std::vector<std::string> in_backticks(std::string_view line) {
  std::vector<std::string> names;
  for (std::size_t begin = line.find('`'); begin != std::string_view::npos; begin = line.find('`')) {
    line.remove_prefix(begin + 1);
    const std::size_t end = line.find('`');
    if (end == std::string_view::npos) break;
    names.emplace_back(line.substr(0, end));
    line.remove_prefix(end + 1);
  }
  return names;
}

std::vector<Finding> check_line(const TextFile& page, std::size_t number, std::string_view line, const Tree& tree) {
  static const std::regex path(R"([a-z0-9_./-]+/[a-z0-9_.-]+\.[a-z]+)");
  static const std::regex identifier(R"([A-Za-z_][A-Za-z0-9_]*(::[A-Za-z_][A-Za-z0-9_]*)*)");
  std::vector<Finding> findings;
  std::vector<const TextFile*> files;
  std::vector<std::string> identifiers;
  for (const std::string& name : in_backticks(line)) {
    if (std::regex_match(name, path)) {
      const TextFile* const file = find(tree, name);
      if (file == nullptr) findings.push_back({page.path, number, name + " is not there"});
      if (file != nullptr) files.push_back(file);
    } else if (std::regex_match(name, identifier)) {
      identifiers.push_back(name);
    } else if (name.find('/') == std::string::npos || !name.ends_with('/')) {
      findings.push_back({page.path, number, name + " is neither a file nor an identifier"});
    }
  }
  for (const std::string& name : identifiers) {
    const auto holds = [&](const TextFile& file) { return is_source(file.path) && has_all_words(file.text, name); };
    if (files.empty() ? std::ranges::any_of(tree.texts, holds)
                      : std::ranges::any_of(files, [&](const TextFile* file) { return holds(*file); })) {
      continue;
    }
    findings.push_back({page.path, number, name + (files.empty() ? " is in no source" : " is in none of these files")});
  }
  return findings;
}

}  // namespace

std::vector<Finding> check_names(const TextFile& page, const Tree& tree) {
  std::vector<Finding> findings;
  std::size_t number = 0;
  bool in_block = false;
  for (const std::string_view line : lines_of(page.text)) {
    ++number;
    const bool is_fence = line.starts_with("```");
    if (is_fence) in_block = !in_block;
    if (is_fence || in_block) continue;
    for (Finding& finding : check_line(page, number, line, tree)) findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace fluvial::house

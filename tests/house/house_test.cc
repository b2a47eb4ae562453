// The tree as it stands, held to the rules.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/house/includes.h"
#include "tests/house/logs.h"
#include "tests/house/names.h"
#include "tests/house/sends.h"
#include "tests/house/tidy.h"

namespace fluvial::house {
namespace {

const std::filesystem::path& root() {
  static const std::filesystem::path path = FLUVIAL_SOURCE_DIR;
  return path;
}

const Tree& tree() {
  static const Tree all = read_tree(root());
  return all;
}

bool exists(const std::string& path) { return std::filesystem::exists(root() / path); }

void append(std::vector<Finding>& all, const std::vector<Finding>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

TEST(House, IsRead) {
  EXPECT_GT(tree().texts.size(), 200u) << "too few files under " << root();
  EXPECT_TRUE(exists("core/base/result.h"));
}

TEST(House, EveryRoomKnowsOnlyFloorsBelow) {
  const std::vector<Finding> findings = check_rooms(rooms());
  EXPECT_TRUE(findings.empty()) << to_string(findings);
}

TEST(House, NobodyIncludesWhatTheyMayNot) {
  std::vector<Finding> findings;
  for (const TextFile& file : tree().texts) {
    if (is_source(file.path)) append(findings, check_includes(file));
  }
  EXPECT_TRUE(findings.empty()) << to_string(findings);
}

TEST(House, IsTidy) {
  std::vector<Finding> findings = tree().large_files;
  for (const TextFile& file : tree().texts) append(findings, check_text(file));
  EXPECT_TRUE(findings.empty()) << to_string(findings);
}

TEST(House, NoFunctionIsLong) {
  std::vector<Finding> findings;
  for (const TextFile& file : tree().texts) {
    if (is_source(file.path) && !file.path.ends_with(".proto")) append(findings, check_functions(file));
  }
  EXPECT_TRUE(findings.empty()) << to_string(findings);
}

TEST(House, EveryLinkLeadsSomewhere) {
  std::vector<Finding> findings;
  for (const TextFile& file : tree().texts) append(findings, check_links(file, exists));
  EXPECT_TRUE(findings.empty()) << to_string(findings);
}

TEST(House, TheWalkNamesWhatIsThere) {
  const auto page = std::ranges::find(tree().texts, "docs/design/walk.md", &TextFile::path);
  ASSERT_NE(page, tree().texts.end());
  const std::vector<Finding> findings = check_names(*page, tree());
  EXPECT_TRUE(findings.empty()) << to_string(findings);
}

TEST(House, LogLinesCanBeJoined) {
  const auto page = std::ranges::find(tree().texts, "docs/operations/logs.md", &TextFile::path);
  ASSERT_NE(page, tree().texts.end());
  const std::set<std::string> fields = fields_of(*page);
  std::vector<Finding> findings;
  for (const TextFile& file : tree().texts) {
    const bool is_product = !file.path.starts_with("tests/") && !file.path.ends_with("_test.cc");
    if (is_product && is_source(file.path)) append(findings, check_logs(file, fields));
  }
  EXPECT_TRUE(findings.empty()) << to_string(findings);
}

TEST(House, WhatFailsToBeSentIsKnown) {
  std::vector<Finding> findings;
  for (const TextFile& file : tree().texts) {
    const bool is_product = !file.path.starts_with("tests/") && file.path.find("test") == std::string::npos;
    if (is_product && file.path.ends_with(".cc")) append(findings, check_sends(file));
  }
  EXPECT_TRUE(findings.empty()) << to_string(findings);
}

// The list in core/telemetry/repeats.h is by message: one that was reworded would not be counted any more.
TEST(House, LinesThatAreCountedWhenTheyRepeatAreWritten) {
  const auto list = std::ranges::find(tree().texts, "core/telemetry/repeats.h", &TextFile::path);
  ASSERT_NE(list, tree().texts.end());
  std::size_t lines = 0;
  const std::size_t end = list->text.find("};", list->text.find("kComingAndGoing = {"));
  for (std::size_t at = list->text.find("kComingAndGoing = {"); (at = list->text.find('"', at)) < end; ++lines) {
    const std::size_t after = list->text.find('"', at + 1) + 1;
    const std::string literal = "info(" + list->text.substr(at, after - at) + ",";
    const bool is_written = std::ranges::any_of(tree().texts, [&](const TextFile& file) {
      return file.path.ends_with(".cc") && file.text.find(literal) != std::string::npos;
    });
    EXPECT_TRUE(is_written) << literal;
    at = after;
  }
  EXPECT_GT(lines, 3U);
}

TEST(House, EveryRoomHasAReadme) {
  std::vector<std::string> folders;
  for (const Room& room : rooms()) {
    if (exists(std::string(room.folder)) && room.folder != "cmake") folders.emplace_back(room.folder);
  }
  const std::vector<Finding> findings = check_readmes(folders, exists);
  EXPECT_TRUE(findings.empty()) << to_string(findings);
}

}  // namespace
}  // namespace fluvial::house

#include "core/config/toml_bounds.h"

#include <gtest/gtest.h>

#include <string>

#include "core/config/toml_file.h"

namespace fluvial::config {
namespace {

std::string times(std::string_view part, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += part;
  return text;
}

std::string refused(const std::string& text) {
  const auto entries = parse_toml(text, "plan.toml", Arrays::kTaken);
  return entries.ok() ? "" : entries.error().message;
}

TEST(TomlBounds, AKeyWithAStackfulOfSegmentsIsRefusedAndNotWalked) {
  constexpr std::size_t kMany = 400'000;
  const std::string keys[] = {"a" + times(".a", kMany) + " = 1", "[a" + times(".a", kMany) + "]\nb = 1",
                              "[[a" + times(" . a", kMany) + "]]", "x = {a" + times(".\"a\"", kMany) + " = 1}",
                              "x = {y = 1, a" + times(".'a'", kMany) + " = 1}"};
  for (const std::string& key : keys) {
    EXPECT_EQ(refused("name = \"n\"\n" + key).find("plan.toml:2: a key has too many segments: expected at most 16"), 0U)
        << key.substr(0, 40);
  }
  const std::string deep = times("a" + times(".a", 9) + " = {", kMany);
  EXPECT_NE(refused("x = {" + deep).find("nested too deeply"), std::string::npos);
  EXPECT_NE(refused("x = " + times("[", kMany)).find("nested too deeply"), std::string::npos);
}

TEST(TomlBounds, AsManySegmentsLevelsAndKeysAsTheBoundSays) {
  EXPECT_EQ(refused("a" + times(".a", kTomlSegmentsMax - 1) + " = 1"), "");
  EXPECT_NE(refused("a" + times(".a", kTomlSegmentsMax) + " = 1"), "");
  EXPECT_EQ(refused("a = " + times("{a = ", kTomlNestingMax) + "1" + times("}", kTomlNestingMax)), "");
  EXPECT_NE(refused("a = " + times("{a = ", kTomlNestingMax + 1) + "1" + times("}", kTomlNestingMax + 1)), "");
  std::string keys;
  for (std::size_t i = 0; i < kTomlKeysMax; ++i) keys += "k" + std::to_string(i) + " = 1\n";
  EXPECT_EQ(refused(keys), "");
  EXPECT_NE(refused(keys + "one_more = 1").find("too many keys"), std::string::npos);
}

TEST(TomlBounds, WhatStandsInTextsAndCommentsIsNoKey) {
  const std::string dots = times("[{.=", 40);
  EXPECT_EQ(refused("# " + dots + "\na = 1"), "");
  EXPECT_EQ(refused("a = \"" + dots + "\\\"" + dots + "\" # " + dots), "");
  EXPECT_EQ(refused("a = '" + dots + "\\'"), "");
  EXPECT_EQ(refused("a = \"\"\"\n" + dots + "\n\"" + dots + "\"\"\"\nb = '''" + dots + "\n'" + dots + "'''"), "");
  EXPECT_EQ(refused("\"" + dots + "\" = 1"), "");
  EXPECT_EQ(refused("a = [0.5, 1.5, " + times("0.25, ", 100) + "2.5]\nb = 1.5"), "");
}

TEST(TomlBounds, ALineIsCountedBehindTextsOfSeveralLines) {
  const std::string key = "a" + times(".a", 20) + " = 1";
  EXPECT_EQ(refused("b = \"\"\"\none\ntwo\"\"\"\n" + key).find("plan.toml:4: "), 0U);
  EXPECT_EQ(refused("b = \"not closed\n" + key).find("plan.toml:2: "), 0U);
}

}  // namespace
}  // namespace fluvial::config

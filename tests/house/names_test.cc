#include "tests/house/names.h"

#include <gtest/gtest.h>

namespace fluvial::house {
namespace {

const Tree kTree{.texts = {{"core/a.cc", "Status Sum::take(Id id) { return add(id); }\n"},
                           {"core/b.h", "class Lane {\n  void push();\n};\n"},
                           {"notes.md", "retake\n"}},
                 .large_files = {}};

std::vector<std::string> findings(const std::string& text) {
  std::vector<std::string> said;
  for (const Finding& finding : check_names({"walk.md", text}, kTree)) said.push_back(to_string(finding));
  return said;
}

TEST(Names, OfFilesAndOfWhatTheyHoldAreTrue) {
  EXPECT_EQ(findings("`core/a.cc`: `Sum::take` calls `add`; `Lane::push` is elsewhere.\n"),
            std::vector<std::string>{"walk.md:1: Lane::push is in none of these files"});
  EXPECT_TRUE(findings("`core/a.cc`, `core/b.h`: `Sum::take`, `Lane::push`, the room `core/`\n").empty());
  EXPECT_TRUE(findings("`Lane` and `push`\n```\n`nobody`\n```\n").empty());
}

TEST(Names, ThatAreGoneAreFound) {
  EXPECT_EQ(findings("\n`core/c.cc`\n"), std::vector<std::string>{"walk.md:2: core/c.cc is not there"});
  EXPECT_EQ(findings("`Sum::pus`\n"), std::vector<std::string>{"walk.md:1: Sum::pus is in no source"});
  EXPECT_EQ(findings("`retake`\n"), std::vector<std::string>{"walk.md:1: retake is in no source"});
  EXPECT_EQ(findings("`take(id)`\n"),
            std::vector<std::string>{"walk.md:1: take(id) is neither a file nor an identifier"});
}

}  // namespace
}  // namespace fluvial::house

#include "tests/house/tidy.h"

#include <gtest/gtest.h>

namespace fluvial::house {
namespace {

std::vector<Finding> check(const std::string& text) { return check_text({"a.cc", text}); }

TEST(Tidy, FindsWhiteSpaceThatNobodySees) {
  EXPECT_TRUE(check("int a;\n\n  int b;\n").empty());
  EXPECT_EQ(check("int a;\n\tint b;\n"), (std::vector<Finding>{{"a.cc", 2, "a tab"}}));
  EXPECT_EQ(check("int a; \n"), (std::vector<Finding>{{"a.cc", 1, "blanks at the end"}}));
  EXPECT_EQ(check("int a;\r\n").size(), 1u);
  EXPECT_EQ(check("int a;\nint b;"), (std::vector<Finding>{{"a.cc", 2, "no end of line"}}));
}

TEST(Tidy, FindsNotesWithoutAReason) {
  const std::string note = std::string("TO") + "DO";
  EXPECT_EQ(check("// " + note + "\n").size(), 1u);
  EXPECT_EQ(check("// " + note + ": later\n").size(), 1u);
  EXPECT_EQ(check("// " + std::string("FIX") + "ME this\n").size(), 1u);
  EXPECT_TRUE(check("// " + note + ": needs NCCL 2.30, see docs\n").empty());
  EXPECT_TRUE(check("// " + note + "S and MASTO" + "DON\n").empty());
}

TEST(Tidy, FindsLongFiles) {
  std::string text;
  for (std::size_t i = 0; i < kLinesMax; ++i) text += "x\n";
  EXPECT_TRUE(check(text).empty());
  EXPECT_EQ(check(text + "x\n").size(), 1u);
}

TEST(Tidy, FindsLongFunctions) {
  const auto check_lines = [](const std::string& begin, std::size_t count, const std::string& end) {
    std::string text = "namespace a {\n\n" + begin + "\n";
    for (std::size_t i = 0; i < count; ++i) text += i % 2 == 0 ? "    x();\n" : "\n";
    return check_functions({"a.cc", text + end + "\n\n}  // namespace a\n"});
  };
  const std::size_t most = kFunctionLinesMax - 2;  // without its first line and its last
  EXPECT_TRUE(check_lines("void f() {", most, "}").empty());
  EXPECT_EQ(check_lines("void f() {", most + 1, "}"),
            (std::vector<Finding>{{"a.cc", 3, "a function of 71 lines, at most 70"}}));
  EXPECT_EQ(check_lines("  void member(int a,\n              int b) {", most, "  }").size(), 1u);
  EXPECT_EQ(check_lines("void f() {\n  g(R\"(\nat the start\n)\");", most, "}").size(), 1u);
  EXPECT_EQ(check_lines("void f() {\n#if ONE\n// a remark", most, "}").size(), 1u);
  EXPECT_TRUE(check_lines("const int kTable[] = {", most + 1, "};").empty());
  EXPECT_TRUE(check_lines("class A {", most + 1, "};").empty());
}

TEST(Tidy, FindsLinksThatLeadNowhere) {
  const std::string docs = std::string("do") + "cs/";  // apart, or the tree's own check finds it here
  const Exists exists = [&](const std::string& path) { return path == docs + "a.md" || path == "README.md"; };
  const auto links = [&](const std::string& path, const std::string& text) {
    return check_links({path, text}, exists).size();
  };
  EXPECT_EQ(links(docs + "b.md", "[a](a.md) [root](../README.md) [part](a.md#x) [here](#x)\n"), 0u);
  EXPECT_EQ(links(docs + "b.md", "see [c](c.md)\n"), 1u);
  EXPECT_EQ(links("README.md", "[a](" + docs + "a.md), [b](" + docs + "b/)\n"), 1u);
  EXPECT_EQ(links(docs + "b.md", "[far](https://example.org/c.md) `[this](c.md)`\n```\n[x](c.md)\n```\n"), 0u);
  EXPECT_EQ(links("core/a.cc", "// see " + docs + "a.md\n"), 0u);
  EXPECT_EQ(links("core/a.cc", "// see " + docs + "never.md\n"), 1u);
}

TEST(Tidy, FindsRoomsWithoutAReadme) {
  const Exists exists = [](const std::string& path) { return path == "edge/README.md" || path == "core/x/README.md"; };
  EXPECT_TRUE(check_readmes({"edge/logic", "edge", "core/x"}, exists).empty());
  EXPECT_EQ(check_readmes({"core/y", "edges"}, exists).size(), 2u);
}

}  // namespace
}  // namespace fluvial::house

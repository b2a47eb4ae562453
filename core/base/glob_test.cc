#include "core/base/glob.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace fluvial {
namespace {

TEST(Glob, StarsAreAnyCharactersAndAQuestionMarkIsOne) {
  for (const auto& [glob, name] : {std::pair("*", ""),
                                   {"a*", "a"},
                                   {"*-b", "x-a-b"},
                                   {"a?c", "abc"},
                                   {"**a*", "ba"},
                                   {"*ab*ab", "ababab"},
                                   {"a*b*c", "a1b2b3c"}}) {
    EXPECT_TRUE(fits_glob(glob, name)) << glob << " " << name;
  }
  for (const auto& [glob, name] : {std::pair("a", "b"),
                                   {"a", ""},
                                   {"", "a"},
                                   {"a?", "a"},
                                   {"a*b", "abc"},
                                   {"?", "ab"},
                                   {"A", "a"},
                                   {"*ab", "aba"}}) {
    EXPECT_FALSE(fits_glob(glob, name)) << glob << " " << name;
  }
}

TEST(Glob, FitsAWholeName) {
  const auto fits = [](std::string_view pattern, std::string_view name) { return fits_glob(pattern, name); };
  EXPECT_TRUE(fits("*running_var", "layer1.0.bn1.running_var"));
  EXPECT_TRUE(fits("*running_var", "running_var"));
  EXPECT_FALSE(fits("*running_var", "running_var.scale"));
  EXPECT_FALSE(fits("running_var", "bn1.running_var"));
  EXPECT_TRUE(fits("batch_stats*", "batch_stats.norm.mean"));
  EXPECT_TRUE(fits("a*b*c", "a.b.b.c"));
  EXPECT_TRUE(fits("a*b*c", "abc"));
  EXPECT_FALSE(fits("a*b*c", "a.c.b"));
  EXPECT_TRUE(fits("*", ""));
  EXPECT_TRUE(fits("a**", "a"));
  EXPECT_FALSE(fits("", "a"));
  EXPECT_FALSE(fits("*ab", "aab.a"));
  EXPECT_TRUE(fits("*ab", "aab") && fits("*ab", "aaab"));
  EXPECT_FALSE(fits("*a*a*a*a*a*a*a*a*a*a*b", std::string(2'000, 'a'))) << "and ends soon";
}

}  // namespace
}  // namespace fluvial

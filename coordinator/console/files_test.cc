#include "coordinator/console/files.h"

#include <gmock/gmock.h>

namespace fluvial::console {
namespace {

using ::testing::HasSubstr;

TEST(ConsoleFiles, AreHereAsTheyLie) {
  const File* page = find_file("index.html");
  ASSERT_NE(page, nullptr);
  EXPECT_TRUE(page->text.starts_with("<!doctype html>"));
  EXPECT_TRUE(page->text.ends_with("</html>\n"));
  EXPECT_EQ(find_file("nothing.js"), nullptr);
  EXPECT_EQ(find_file(""), nullptr);
}

TEST(ConsoleFiles, EachHasATypeThatABrowserTakes) {
  for (const File& file : files()) EXPECT_NE(content_type_of(file.name), "application/octet-stream") << file.name;
  EXPECT_THAT(content_type_of("main.js"), HasSubstr("text/javascript"));
}

// The page is served under a policy that allows nothing from elsewhere and nothing inline, and that refuses text that
// is to become markup.
TEST(ConsoleFiles, NothingComesFromElsewhereAndNothingIsMarkup) {
  for (const File& file : files()) {
    const std::string text(file.text);
    for (const char* bad : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function",
                            "setAttribute(\"style\"", "style=\"", "onclick=", "//cdn", "@import"}) {
      EXPECT_EQ(text.find(bad), std::string::npos) << file.name << " has " << bad;
    }
    for (std::size_t at = 0; (at = text.find("http", at)) != std::string::npos; at += 4) {
      const std::string rest = text.substr(at, 40);
      EXPECT_TRUE(!rest.starts_with("http://") && !rest.starts_with("https://") ||
                  rest.starts_with("http://www.w3.org/2000/svg"))
          << file.name << ": " << rest;
    }
  }
}

}  // namespace
}  // namespace fluvial::console

#include "cli/authority_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fluvial::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

json::value authority(const char* phase) {
  return json::object{{"phase", phase},
                      {"trust", 7},
                      {"authorities", json::array{json::object{{"state", "issuing"},
                                                               {"since", "2026-01-31T12:00:00.123Z"},
                                                               {"pin", "sha256:abc"},
                                                               {"name", "clinics"},
                                                               {"ends_at", "2036-01-31T12:00:00.123Z"}}}},
                      {"without", json::array()},
                      {"relying", json::array()},
                      {"open_tokens", 0}};
}

TEST(AuthorityScreen, SaysWhoIssuesUntilWhen) {
  EXPECT_THAT(authority_screen(authority("none"), Terminal::plain()),
              AllOf(HasSubstr("issuing"), HasSubstr("2036-01-31 12:00:00 UTC"), HasSubstr("sha256:abc"),
                    HasSubstr("no rollover is under way")));
  EXPECT_EQ(rollover_lines(authority("none"), Terminal::plain()), "");
}

TEST(AuthorityScreen, NamesWhoIsWaitedForAndTheNextStepWhenNobodyIs) {
  json::value begun = authority("begun");
  EXPECT_THAT(rollover_lines(begun, Terminal::plain()), HasSubstr("-> fluvial authority rollover issue\n"));
  begun.as_object()["without"] = json::array{"hospital-a"};
  EXPECT_THAT(rollover_lines(begun, Terminal::plain()),
              HasSubstr("1 member does not trust the next authority yet: hospital-a\n"));
  json::value issuing = authority("issuing");
  EXPECT_THAT(rollover_lines(issuing, Terminal::plain()), HasSubstr("-> fluvial authority rollover end\n"));
  json::array many;
  for (int i = 0; i < 25; ++i) many.push_back(json::string("site-" + std::to_string(i)));
  issuing.as_object()["relying"] = many;
  issuing.as_object()["open_tokens"] = 2;
  EXPECT_THAT(rollover_lines(issuing, Terminal::plain()),
              AllOf(HasSubstr("25 members rely on the authority before"), HasSubstr("and 5 more\n"),
                    HasSubstr("2 tokens are open: those made before")));
}

}  // namespace
}  // namespace fluvial::cli

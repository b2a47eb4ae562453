#include "cli/completion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fluvial::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A command line as ours are declared.
struct Declared {
  CLI::App app{"an example", "fluvial"};
  std::string role, file, name, plan, level;
  bool json = false;

  Declared() {
    CLI::App* token = app.add_subcommand("token", "it's for tokens");
    CLI::App* create = token->add_subcommand("create", "make one");
    create->add_option("--role", role, "whose")->type_name("ROLE")->check(one_of({"site", "aggregator"}));
    create->add_option("--out", file, "where to")->type_name("FILE");
    create->add_option("--name", name, "what it's called")->type_name("NAME");
    create->add_option("--log-level", level, "the least")->type_name("debug, info or cuda:N");
    create->add_flag("--json", json, "as JSON");
    app.add_subcommand("run", "a run")->add_option("PLAN", plan, "a plan")->type_name("FILE");
    app.add_subcommand("hidden", "not for people")->group("");
  }
  std::string script(Shell shell) const { return completion_script(app, shell); }
};

TEST(Completion, HoldsWhatIsDeclaredAndIsNotHidden) {
  const Declared declared;
  for (const Shell shell : {Shell::kBash, Shell::kZsh, Shell::kFish}) {
    const std::string script = declared.script(shell);
    EXPECT_THAT(script, AllOf(HasSubstr("fluvial token create"), HasSubstr("role"), HasSubstr("json"),
                              HasSubstr("site aggregator"), HasSubstr("debug info"), Not(HasSubstr("hidden")),
                              Not(HasSubstr("cuda:N"))));
  }
}

TEST(Completion, OfBashTellsFlagsFromOptionsThatTakeAValue) {
  const std::string script = Declared().script(Shell::kBash);
  EXPECT_THAT(script, HasSubstr("'fluvial token create:--role') _fluvial_words 'site aggregator'; return"));
  EXPECT_THAT(script, HasSubstr("'fluvial token create:--out') _fluvial_paths; return"));
  EXPECT_THAT(script, HasSubstr("'fluvial token create:--name') :; return"));
  EXPECT_THAT(script, Not(HasSubstr(":--json'")));
}

TEST(Completion, QuotesForItsShell) {
  EXPECT_THAT(Declared().script(Shell::kZsh), HasSubstr("'token:it'\\''s for tokens'"));
  EXPECT_THAT(Declared().script(Shell::kFish), HasSubstr("-d 'it\\'s for tokens'"));
}

}  // namespace
}  // namespace fluvial::cli

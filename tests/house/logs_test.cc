#include "tests/house/logs.h"

#include <gtest/gtest.h>

namespace fluvial::house {
namespace {

const std::set<std::string> kFields = {"run", "site", "reason"};

std::vector<Finding> check_log(const std::string& line) {
  return check_logs({"a.cc", "void f() {\n" + line + "\n}\n"}, kFields);
}

TEST(Logs, AGoodLinePasses) {
  for (const char* line :
       {R"(runtime_.log.info("round open", {{"run", run}, {"site", name}});)",
        R"(log_.warn("site refused; the round goes on", {{"reason", error.to_string()}});)",
        R"(log_of(offer.run, offer.round)
      .error("it failed; "
             "it is tried again");)",
        R"(log.info(again ? "sent again" : "sent", {{"run", run}});)", R"(log_.warn(late_text(over), {{"run", run}});)",
        R"(metrics.log("x" + y, {{"other", 1}});)", R"(catalog.warn("no logger");)",
        R"x(log.info("a (bracket, \"quoted\")", {sender(), {"run", run}});)x"}) {
    EXPECT_TRUE(check_log(line).empty()) << line << "\n" << to_string(check_log(line));
  }
}

TEST(Logs, WhatCannotBeJoinedIsFound) {
  for (const char* line :
       {R"(log.info("run " + name);)", R"(log.info(fmt::format("run {}", run));)",
        R"(log_.warn("site refused", {{"run", run}});)", R"(runtime.log.error("it failed: sorry");)",
        R"(log_.warn(gone ? "gone; another comes" : "failed");)", R"(log.info("open", {{"rund", run}});)",
        R"(log_.with({{"run", run}, {"rund", run}}).info("x");)", R"(round_log(attempt).warn("refused");)"}) {
    EXPECT_EQ(check_log(line).size(), 1u) << line << "\n" << to_string(check_log(line));
  }
  EXPECT_EQ(check_log(R"(log.info("run " + name);)").at(0).line, 2u);
}

TEST(Logs, APagesTablesNameTheFields) {
  EXPECT_EQ(fields_of({"p.md", "| name | type |\n|---|---|\n| `run` | number |\n| `site` | text |\ntext `no`\n"}),
            (std::set<std::string>{"run", "site"}));
}

}  // namespace
}  // namespace fluvial::house

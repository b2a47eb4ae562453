#include "cli/doctor/checkup.h"

#include <gtest/gtest.h>

#include <future>
#include <stdexcept>

namespace fluvial::cli::doctor {
namespace {

void nobody(const std::vector<std::string>&) {}

TEST(DoctorCheckup, KeepsTheOrderAndRunsThemSideBySide) {
  std::promise<void> second_began;
  std::vector<Check> checks;
  checks.push_back({"first", [began = second_began.get_future().share()] {
                      began.wait();  // one after the other it would wait for ever
                      return Findings{{Severity::kOk, "one"}};
                    }});
  checks.push_back({"second", [&second_began] {
                      second_began.set_value();
                      return Findings{{Severity::kWarning, "two", "do"}};
                    }});
  const Checkup checkup = check_all(std::move(checks), std::chrono::minutes(1), nobody);
  EXPECT_TRUE(checkup.all_ended);
  ASSERT_EQ(checkup.checks.size(), 2u);
  EXPECT_EQ(checkup.checks[0].name, "first");
  EXPECT_EQ(checkup.checks[0].findings, (Findings{{Severity::kOk, "one"}}));
  EXPECT_EQ(checkup.checks[1].findings, (Findings{{Severity::kWarning, "two", "do"}}));
}

TEST(DoctorCheckup, WhatHangsIsAFindingAndNotWaitedFor) {
  const auto release = std::make_shared<std::promise<void>>();
  const auto released = release->get_future().share();
  const auto gone = std::make_shared<std::promise<void>>();
  std::vector<Check> checks = {{"disk", [released, gone] {
                                  released.wait();
                                  gone->set_value();
                                  return Findings{};
                                }}};
  std::vector<std::string> heard;
  const Checkup checkup = check_all(std::move(checks), std::chrono::milliseconds(1),
                                    [&heard](const std::vector<std::string>& names) { heard = names; });
  EXPECT_FALSE(checkup.all_ended);
  EXPECT_EQ(heard, std::vector<std::string>{"disk"});
  ASSERT_EQ(checkup.checks.size(), 1u);
  ASSERT_EQ(checkup.checks[0].findings.size(), 1u);
  EXPECT_EQ(checkup.checks[0].findings[0].severity, Severity::kError);
  EXPECT_NE(checkup.checks[0].findings[0].what.find("not ended within"), std::string::npos);
  release->set_value();
  gone->get_future().wait();
}

TEST(DoctorCheckup, ACheckThatThrowsIsAFinding) {
  std::vector<Check> checks = {{"odd", []() -> Findings { throw std::runtime_error("out of luck"); }}};
  const Checkup checkup = check_all(std::move(checks), std::chrono::minutes(1), nobody);
  EXPECT_NE(checkup.checks.at(0).findings.at(0).what.find("out of luck"), std::string::npos);
}

}  // namespace
}  // namespace fluvial::cli::doctor

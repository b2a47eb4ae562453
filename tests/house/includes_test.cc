#include "tests/house/includes.h"

#include <gtest/gtest.h>

namespace fluvial::house {
namespace {

std::vector<Finding> check(const std::string& path, const std::string& text) { return check_includes({path, text}); }

struct Case {
  std::string path;
  std::string line;
};

TEST(Includes, RefusesWhatARoomMayNotKnow) {
  const std::vector<Case> cases = {
      {"core/base/a.h", "#include \"core/round/plan.h\""},
      {"core/base/a.h", "#include <fmt/format.h>"},
      {"core/base/a.h", "#include <unistd.h>"},
      {"kernels/a.cc", "#include \"core/round/plan.h\""},
      {"kernels/a.cc", "#include \"kernels/reference/reference.h\""},
      {"kernels/reference/a.cc", "#include \"kernels/ops/fixed.h\""},
      {"core/store/a.cc", "#include \"kernels/ops/fixed.h\""},
      {"core/aggregate/a.cc", "#include \"kernels/cpu/loops.h\""},
      {"core/round/a.cc", "#include \"core/wire/frame.h\""},
      {"coordinator/logic/a.cc", "#include \"core/store/journal.h\""},
      {"coordinator/logic/a.cc", "#include \"fluvial/v1/wire.pb.h\""},
      {"coordinator/service/a.cc", "#include \"edge/logic/site_machine.h\""},
      {"edge/service/a.cc", "#include \"aggregator/service/aggregator.h\""},
      {"core/net/a.cc", "#include \"core/store/journal.h\""},
      {"core/store/a.cc", "#include \"core/net/session.h\""},
      {"cli/a.cc", "#include \"coordinator/logic/run_machine.h\""},
      {"examples/digits/a.cc", "#include \"core/net/session.h\""},
      {"core/store/a_test.cc", "#include \"core/net/session.h\""},
      {"proto/fluvial/v1/a.proto", "import \"core/base/result.h\";"},
      {"core/wire/a.h", "#include <boost/asio/awaitable.hpp>"},
      {"core/tree/a.h", "#include <boost/beast/http.hpp>"},
      {"core/tree/a.h", "#include <openssl/ssl.h>"},
      {"coordinator/service/a.cc", "#include <sqlite3.h>"},
      {"core/round/a.cc", "#include <thread>"},
      {"edge/logic/a.cc", "#  include <random>"},
      {"core/aggregate/a.cc", "#include <sys/socket.h>"},
      {"core/round/a.cc", "#include \"plan.h\""},
      {"core/round/a.cc", "#include \"core/nowhere/plan.h\""},
  };
  for (const Case& one : cases) {
    const std::vector<Finding> findings = check(one.path, "\n" + one.line + "\n");
    ASSERT_EQ(findings.size(), 1u) << one.path << ": " << one.line;
    EXPECT_EQ(findings[0].path, one.path);
    EXPECT_EQ(findings[0].line, 2u);
  }
}

TEST(Includes, AllowsWhatItMayKnow) {
  const std::vector<Case> cases = {
      {"core/base/a.h", "#include <vector>"},
      {"core/base/base_test.cc", "#include <gtest/gtest.h>"},
      {"kernels/a_test.cc", "#include \"kernels/reference/reference.h\""},
      {"core/aggregate/a_test.cc", "#include <thread>"},
      {"coordinator/logic/a.cc", "#include \"kernels/fixed.h\""},
      {"coordinator/service/a.cc", "#include \"coordinator/logic/run_machine.h\""},
      {"coordinator/service/a.cc", "#include <boost/asio/steady_timer.hpp>"},
      {"core/tree/a.h", "#include \"fluvial/v1/wire.pb.h\""},
      {"core/wire/a.cc", "// #include \"core/net/session.h\" is what it must not do"},
      {"cli/main/main.cc", "#include \"cli/command.h\""},
      {"tests/bench/a.cc", "#include <openssl/ssl.h>"},
      {"core/net/a.cc", "#include <thread>"},
  };
  for (const Case& one : cases) {
    const std::vector<Finding> findings = check(one.path, one.line + "\n");
    EXPECT_TRUE(findings.empty()) << to_string(findings);
  }
}

TEST(Includes, FindsChanceAndTimeInIsolatedRooms) {
  const std::string now = "const auto now = std::chrono::steady_clock::now();\n";
  EXPECT_EQ(check("core/round/a.cc", now).size(), 1u);
  EXPECT_EQ(check("coordinator/logic/a.cc", "int x = std::rand();\n").size(), 1u);
  EXPECT_TRUE(check("core/round/a.cc", "// never steady_clock::now()\n").empty());
  EXPECT_TRUE(check("core/round/a_test.cc", now).empty());
  EXPECT_TRUE(check("core/net/a.cc", now).empty());
}

TEST(Includes, AFileStandsInARoom) {
  EXPECT_EQ(check("corex/base/a.cc", "").size(), 1u);
  EXPECT_EQ(check("core/a.cc", "").size(), 1u);
  ASSERT_NE(room_of("kernels/cpu/loops.cc"), nullptr);
  EXPECT_EQ(room_of("kernels/cpu/loops.cc")->folder, "kernels/cpu");
  EXPECT_EQ(room_of("kernels/fixed.cc")->folder, "kernels");
}

TEST(Includes, ATableThatKnowsUpwardsIsRefused) {
  EXPECT_TRUE(check_rooms({{"a", {}}, {"b", {"a"}}}).empty());
  EXPECT_EQ(check_rooms({{"a", {"b"}}, {"b", {"a"}}}).size(), 1u);
  EXPECT_EQ(check_rooms({{"a", {}, {"c"}}}).size(), 1u);
}

}  // namespace
}  // namespace fluvial::house

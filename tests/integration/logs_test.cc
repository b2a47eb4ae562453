// What a log store makes of a federation's lines: docs/operations/logs.md, held to what the processes write.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <limits>
#include <regex>
#include <set>
#include <sstream>

#include "cli/admin_client.h"
#include "core/base/testing.h"
#include "tests/integration/harness.h"

namespace fluvial::integration {
namespace {

using cli::json::value;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

// The page's tables: the type of each field.
std::map<std::string, std::string> documented() {
  std::map<std::string, std::string> types;
  std::istringstream page(text_of_file(std::string(FLUVIAL_SOURCE_DIR) + "/docs/operations/logs.md"));
  const std::regex row(R"(\| `([a-z0-9_]+)` \| (text|number|boolean) \|.*)");
  std::smatch match;
  for (std::string line; std::getline(page, line);) {
    if (std::regex_match(line, match, row)) types[match[1]] = match[2];
  }
  return types;
}

bool has_type(const value& field, const std::string& type) {
  if (type == "text") return field.is_string();
  if (type == "boolean") return field.is_bool();
  return field.is_number() || field.is_null();
}

void expect_good(const std::string& text, const std::map<std::string, std::string>& types) {
  static const std::regex rfc3339(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)");
  const auto line = cli::parse_json(text, "a line");
  ASSERT_TRUE(line.ok() && line->is_object()) << text;
  EXPECT_TRUE(std::regex_match(cli::text_member(*line, "time"), rfc3339)) << text;
  for (const char* always : {"level", "message", "role", "federation", "node"}) {
    EXPECT_NE(cli::text_member(*line, always), "") << always << " is missing in " << text;
  }
  std::set<std::string> seen;
  for (const auto& [key, field] : line->as_object()) {
    const std::string name(key);
    const auto type = types.find(name);
    ASSERT_NE(type, types.end()) << name << " is not documented: " << text;
    EXPECT_TRUE(has_type(field, type->second)) << name << " is no " << type->second << ": " << text;
    EXPECT_NE(text.find('"' + name + "\":"), std::string::npos);
    EXPECT_TRUE(seen.insert(name).second) << name << " is there twice: " << text;
  }
  const std::string level = cli::text_member(*line, "level");
  if (level == "warn" || level == "error") EXPECT_THAT(cli::text_member(*line, "message"), HasSubstr("; ")) << text;
}

class LogsTest : public FederationTest {
 protected:
  void start_json(std::uint64_t sites, std::uint64_t aggregators) {
    cli::FederationShape shape{.sites = sites, .aggregators = aggregators};
    for (const char* role : {"coordinator", "aggregator", "site"}) {
      shape.arguments[role] = {"--log-format", "json", "--log-level", "debug"};
    }
    start(std::move(shape));
  }
  std::vector<std::string> lines_of(const std::string& node) const {
    std::vector<std::string> lines;
    std::istringstream log(log_of(node));
    for (std::string line; std::getline(log, line);) lines.push_back(line);
    return lines;
  }
  // The messages of a node's lines with these three fields.
  std::set<std::string> told(const std::string& node, std::uint64_t run, std::uint64_t round, const std::string& site) {
    std::set<std::string> messages;
    for (const std::string& text : lines_of(node)) {
      const auto line = cli::parse_json(text, "a line");
      if (!line.ok() || cli::count_member(*line, "run") != run || cli::count_member(*line, "round") != round) continue;
      if (cli::text_member(*line, "site") == site) messages.insert(cli::text_member(*line, "message"));
    }
    return messages;
  }
};

TEST_F(LogsTest, ALogStoreCanJoinThemOnRunRoundAndSite) {
  start_json(2, 1);
  add_worker(1);
  add_worker(2, [train = bench_train(2)](const local::Task& task, std::span<const float> base, std::span<float> local) {
    const bool done = train(task, base, local);
    if (task.round == RoundId(2)) local[7] = std::numeric_limits<float>::quiet_NaN();
    return done;
  });
  round::Plan wanted = plan(3);
  wanted.quorum = 1;
  const std::uint64_t run = start_run(wanted, 10'000);
  wait_state(run, "done");
  for (const char* site : {"site-1", "site-2"}) wait_log(site, "run complete");
  federation_->kill("aggregator-1");  // what its children say then is a warning
  wait_log("site-1", "lost the parent");
  supervisor_->stop();  // who stops says so, too

  const std::map<std::string, std::string> types = documented();
  ASSERT_GT(types.size(), 50u);
  for (const char* node : {"coordinator", "aggregator-1", "site-1", "site-2"}) {
    const std::vector<std::string> lines = lines_of(node);
    EXPECT_GT(lines.size(), 10u) << node;
    for (const std::string& line : lines) expect_good(line, types);
  }
  EXPECT_THAT(told("site-1", run, 1, "site-1"),
              IsSupersetOf({"round open", "trained", "update encoded", "update sent", "update counted"}));
  EXPECT_THAT(told("aggregator-1", run, 1, "site-1"), IsSupersetOf({"update received"}));
  EXPECT_THAT(told("coordinator", run, 1, "site-1"), IsSupersetOf({"update counted"}));
  // What is wrong with one site's update is said by its number or name at each node above.
  EXPECT_THAT(told("coordinator", run, 2, "site-2"), IsSupersetOf({"site refused; the round goes on without it"}));
  EXPECT_THAT(told("aggregator-1", run, 2, "site-2"), IsSupersetOf({"site refused; the round goes on without it"}));
  EXPECT_THAT(told("site-2", run, 2, "site-2"),
              IsSupersetOf({"update cannot be encoded; this round goes on without this site"}));
}

TEST_F(LogsTest, AProcessThatCannotGoOnSaysSoInJson) {
  const CommandRun ran = run_fluvial(*supervisor_, folder_,
                                     {"edge", "--log-format", "json", "--data-dir", folder_.file("nobody"),
                                      "--coordinator", "127.0.0.1:1", "--metrics-listen", "off"});
  EXPECT_EQ(ran.exit_status, 1);
  const auto line = cli::parse_json(ran.output, "the line");
  ASSERT_TRUE(line.ok()) << ran.output;
  EXPECT_EQ(cli::text_member(*line, "level"), "error");
  EXPECT_EQ(cli::text_member(*line, "role"), "site");
  EXPECT_THAT(cli::text_member(*line, "reason"), HasSubstr("not enrolled"));
}

}  // namespace
}  // namespace fluvial::integration

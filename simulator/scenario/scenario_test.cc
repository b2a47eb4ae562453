#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "core/base/testing.h"
#include "simulator/scenario/keys.h"
#include "simulator/scenario/scenario_file.h"

namespace fluvial::simulator {
namespace {

const std::filesystem::path kSource = FLUVIAL_SOURCE_DIR;

std::string refusal(const std::string& toml) {
  const auto file = ScenarioFile::parse(toml, "dir/s.toml");
  if (file.ok()) return "(read)";
  EXPECT_EQ(file.error().code, Code::kInvalidArgument);
  EXPECT_EQ(file.error().message.find('\n'), std::string::npos);
  return file.error().message;
}

TEST(ScenarioFile, TakesValuesAndRanges) {
  const auto file = ScenarioFile::parse(R"(name = "t"
[tree]
sites = [2, 9]
[faults.network]
loss = 0.25
late_by_ms = [10, 20]
[plan]
rounds = 7
codec = ["fp32", "int8"]
deadlines.soft_ms = [100, 200]
deadlines.hard_ms = 300
)",
                                        "s.toml");
  ASSERT_TRUE(file.ok()) << file.error().message;
  std::set<std::uint64_t> sites;
  std::set<std::string> codecs;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const auto drawn = file->draw(seed);
    ASSERT_TRUE(drawn.ok()) << drawn.error().message;
    sites.insert(drawn->tree.sites);
    codecs.insert(drawn->plan.codec);
    EXPECT_EQ(drawn->faults.network.loss, 0.25);
    EXPECT_GE(drawn->faults.network.late_by, std::chrono::milliseconds(10));
    EXPECT_LE(drawn->faults.network.late_by, std::chrono::milliseconds(20));
    EXPECT_EQ(drawn->plan.rounds, 7u);
    EXPECT_EQ(drawn->plan.name, "t");
    EXPECT_THAT(drawn->plan.soft_deadline.count(), testing::AllOf(testing::Ge(100), testing::Le(200)));
  }
  EXPECT_THAT(sites, testing::ElementsAre(2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_THAT(codecs, testing::ElementsAre("fp32", "int8"));
}

TEST(ScenarioFile, OneBitAdamIsDrawnWithBothItsHalves) {
  const auto file = ScenarioFile::parse(
      "name = \"t\"\n[plan]\ncodec = [\"fp32\", \"onebit_adam:freeze=2\"]\noptimizer.name = [\"fedavg\", \"lamb\"]\n"
      "optimizer.averaged = [\"layer0\", \"*.rest\"]\n",
      "s.toml");
  ASSERT_TRUE(file.ok()) << file.error().message;
  int drawn_with_it = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const round::Plan plan = file->draw(seed).value().plan;
    const bool is_onebit = plan.optimizer.kind == round::Optimizer::kOnebitAdam;
    EXPECT_EQ(is_onebit, plan.codec != "fp32");
    drawn_with_it += is_onebit ? 1 : 0;
  }
  EXPECT_GT(drawn_with_it, 10);
}

TEST(ScenarioFile, SaysWhichLineIsWrong) {
  EXPECT_EQ(refusal("x = 1\n"), "dir/s.toml:1: unknown key 'x'");
  EXPECT_EQ(refusal("name = \"t\"\n[faults.network]\nlos = 0.1\n"),
            "dir/s.toml:3: unknown key 'faults.network.los': did you mean 'faults.network.loss'?");
  EXPECT_EQ(refusal("name = \"t\"\n[faults.network]\nloss = 2\n"),
            "dir/s.toml:3: faults.network.loss = '2': expected a number, 0 to 1, or [low, high] of such");
  EXPECT_EQ(refusal("name = \"t\"\n[tree]\nsites = [3, 2]\n"),
            "dir/s.toml:3: tree.sites = '[3, 2]': expected a whole number, 0 to 1e+06, or [low, high] of such");
  EXPECT_EQ(refusal("name = \"t\"\n[tree]\nsites = 1.5\n"),
            "dir/s.toml:3: tree.sites = '1.5': expected a whole number, 0 to 1e+06, or [low, high] of such");
  EXPECT_EQ(refusal("name = \"t\"\n[plan]\nrunds = 3\n"), "dir/s.toml:3: unknown key 'runds': did you mean 'rounds'?");
  EXPECT_EQ(refusal("name = \"t\"\n[plan]\nrounds = [0, 3]\n"), "dir/s.toml:3: rounds = 0: expected 1 to 1000000000");
  EXPECT_EQ(refusal("[tree]\nsites = 1\n"), "dir/s.toml: name is missing");
  EXPECT_EQ(refusal("name = \"t\"\nbase = \"none.toml\"\n"), "dir/s.toml:2: base: dir/none.toml: cannot be read");
}

TEST(ScenarioFile, AKindOfFaultMayBeOffInASeed) {
  const auto file = ScenarioFile::parse(
      "name = \"t\"\n[faults]\noff = 0.5\nnetwork.loss = 0.3\nnetwork.loss_stall_ms = 70\n", "s.toml");
  ASSERT_TRUE(file.ok());
  int off = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const auto drawn = file->draw(seed);
    off += drawn->faults.network.loss == 0 ? 1 : 0;
    EXPECT_EQ(drawn->faults.network.loss_stall, std::chrono::milliseconds(70));
  }
  EXPECT_GT(off, 150);
  EXPECT_LT(off, 250);
}

TEST(ScenarioFiles, AreReadAndDrawn) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kSource / "tests/simulator/scenarios")) {
    const auto file = ScenarioFile::load(entry.path().string());
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(file->name(), entry.path().stem().string());
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      const auto drawn = file->draw(seed);
      EXPECT_TRUE(drawn.ok()) << drawn.error().message;
    }
    ++count;
  }
  EXPECT_GE(count, 20);
}

TEST(ScenarioFiles, EverythingDrawsEveryFaultThereIs) {
  const auto file = ScenarioFile::load((kSource / "tests/simulator/scenarios/everything.toml").string());
  ASSERT_TRUE(file.ok()) << file.error().message;
  std::set<std::string> missing;
  for (const ScenarioKey& key : scenario_keys()) {
    if (key.kind == NumberKind::kFault) missing.insert(key.key);
  }
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const Scenario drawn = file->draw(seed).value();
    for (const ScenarioKey& key : scenario_keys()) {
      if (key.get(drawn) > 0) missing.erase(key.key);
    }
  }
  EXPECT_THAT(missing, testing::IsEmpty());
}

TEST(Docs, SimulatePageIsTrue) {
  const std::filesystem::path path = kSource / "docs/operations/simulate.md";
  std::string page = text_of_file(path);
  const std::string begin = "<!-- generated -->\n";
  const auto from = page.find(begin);
  const auto to = page.find("<!-- end -->");
  ASSERT_TRUE(from != std::string::npos && to != std::string::npos);
  const std::string expected = "\n" + scenario_markdown() + "\n";
  const std::string held = page.substr(from + begin.size(), to - from - begin.size());
  if (held != expected && std::getenv("FLUVIAL_UPDATE_DOCS") != nullptr) {
    page.replace(from + begin.size(), held.size(), expected);
    std::ofstream(path) << page;
    return;
  }
  EXPECT_EQ(held, expected) << "run it with FLUVIAL_UPDATE_DOCS=1";
}

}  // namespace
}  // namespace fluvial::simulator

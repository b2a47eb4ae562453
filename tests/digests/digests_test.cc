// Recorded digests of whole runs: the same in every tree, on every instruction set, from one version to the next.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/digests/federation.h"

namespace fluvial::digests {
namespace {

// What is recorded anew is what a tree without aggregators makes; the others must agree with it. There each run has
// another number than here, because the tables come the other way round: no bit of a model may depend on a run's
// number.
void check_tree(const std::string& where, const Tree& tree, bool records = false) {
  const auto federation = DigestFederation::start(tree);
  ASSERT_TRUE(federation.ok()) << federation.error().message;
  std::vector<std::string> tables = {"stochastic.toml", "deterministic.toml"};
  if (!records) std::ranges::reverse(tables);
  for (const std::string& table : tables) {
    check_table(std::string(FLUVIAL_DIGESTS_FOLDER) + "/" + table, where, records,
                [&](const Entry& entry) { return (*federation)->run(entry); });
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(Digests, AreThoseOfATreeWithoutAggregators) {
  check_tree("without aggregators", {.executable = FLUVIAL_EXECUTABLE}, true);
}

TEST(Digests, AreThoseOfTwoRegions) {
  check_tree("in two regions", {.executable = FLUVIAL_EXECUTABLE, .aggregators = 2});
}

TEST(Digests, AreThoseOfTwoTiers) {
  check_tree("in two tiers", {.executable = FLUVIAL_EXECUTABLE, .aggregators = 2, .tiers = 2});
}

TEST(Digests, AreThoseOfMachinesWithoutWideInstructions) {
  check_tree("on the baseline's instructions", {.executable = FLUVIAL_BASELINE, .aggregators = 2});
}

}  // namespace
}  // namespace fluvial::digests

// Recorded digests of whole runs: the same in every tree, on every instruction set, from one version to the next.
#include <gtest/gtest.h>

#include "tests/digests/federation.h"

namespace fluvial::digests {
namespace {

constexpr const char* kTables[] = {"stochastic.toml", "deterministic.toml"};  // the first names its runs' numbers

void check_tree(const std::string& where, const Tree& tree, bool records = false) {
  const auto federation = DigestFederation::start(tree);
  ASSERT_TRUE(federation.ok()) << federation.error().message;
  for (const char* table : kTables) {
    check_table(std::string(FLUVIAL_DIGESTS_FOLDER) + "/" + table, where, records,
                [&](const Entry& entry) { return (*federation)->run(entry); });
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// What is recorded anew is what a tree without aggregators makes; the others must agree with it.
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

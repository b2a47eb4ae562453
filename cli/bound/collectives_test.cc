// Against sums done by hand, and against schedules walked step by step.
#include "cli/bound/collectives.h"

#include <gtest/gtest.h>

namespace fluvial::cli::bound {
namespace {

// 1,000 bytes take 1 s beyond the 1 s of any message, and 0.1 s to add.
constexpr LineModel kLine{.alpha_s = 1.0, .beta_s_byte = 0.001, .gamma_s_byte = 0.0001};
constexpr double kBytes = 1'000;

TEST(Collectives, FourNodesByHand) {
  EXPECT_NEAR(ring(4, kBytes).seconds(kLine), 6 + 1.5 + 0.075, 1e-12);
  EXPECT_NEAR(halving_doubling(4, kBytes).seconds(kLine), 4 + 1.5 + 0.075, 1e-12);
  EXPECT_NEAR(binomial_tree(4, kBytes).seconds(kLine), 4 + 4 + 0.2, 1e-12);
  EXPECT_NEAR(star(4, kBytes).seconds(kLine), 2 + 8 + 0.4, 1e-12);
  EXPECT_NEAR(two_level(4, 2, kBytes).seconds(kLine), 4 + 8 + 0.4, 1e-12);
  EXPECT_NEAR(lower_bound(4, kBytes).seconds(kLine), 2 + 1.5 + 0.075, 1e-12);
}

TEST(Collectives, SixNodesByHand) {
  EXPECT_NEAR(ring(6, 600).seconds(kLine), 10 + 2 * 0.5 + 0.05, 1e-12);
  // Four of the six as above with 600 bytes; two send theirs first and get the result last.
  EXPECT_NEAR(halving_doubling(6, 600).seconds(kLine), (4 + 0.9 + 0.045) + (2 + 1.2 + 0.06), 1e-12);
  EXPECT_NEAR(binomial_tree(6, 600).seconds(kLine), 6 + 3.6 + 0.18, 1e-12);
  EXPECT_NEAR(two_level(6, 2, 600).seconds(kLine), 4 + (3.6 + 2.4) + (0.18 + 0.12), 1e-12);
  EXPECT_NEAR(two_level(7, 2, 600).seconds(kLine), 4 + (4.8 + 2.4) + (0.24 + 0.12), 1e-12);  // the larger group counts
  EXPECT_NEAR(lower_bound(6, 600).steps, 3, 0);
}

// Recursive halving walked: the part that a node holds halves with each step, and it sends the other half.
TEST(Collectives, HalvingIsWhatAWalkThroughItsStepsCounts) {
  for (const std::uint64_t nodes : {2U, 8U, 64U}) {
    double held = kBytes, sent = 0, steps = 0;
    for (std::uint64_t group = nodes; group > 1; group /= 2) {
      held /= 2;
      sent += held;
      ++steps;
    }
    const CollectiveCost cost = halving_doubling(nodes, kBytes);
    EXPECT_NEAR(cost.line_bytes, 2 * sent, 1e-9);
    EXPECT_NEAR(cost.reduced_bytes, sent, 1e-9);
    EXPECT_NEAR(cost.steps, 2 * steps, 0);
  }
}

// A ring walked: in each of p - 1 steps a node sends one of p parts, first to add it, then to hand it round.
TEST(Collectives, RingIsWhatAWalkThroughItsStepsCounts) {
  for (const std::uint64_t nodes : {2U, 3U, 5U, 16U}) {
    double sent = 0, added = 0, steps = 0;
    for (std::uint64_t step = 1; step < nodes; ++step, ++steps) {
      sent += kBytes / static_cast<double>(nodes);
      added += kBytes / static_cast<double>(nodes);
    }
    const CollectiveCost cost = ring(nodes, kBytes);
    EXPECT_NEAR(cost.line_bytes, 2 * sent, 1e-9);
    EXPECT_NEAR(cost.reduced_bytes, added, 1e-9);
    EXPECT_NEAR(cost.steps, 2 * steps, 0);
  }
}

TEST(Collectives, NothingGetsBelowTheLowerBoundInAnyOfItsParts) {
  for (std::uint64_t nodes = 1; nodes <= 130; ++nodes) {
    const CollectiveCost least = lower_bound(nodes, kBytes);
    for (const NamedCost& named : all_collectives(nodes, 3, kBytes)) {
      if (nodes < 3 && named.name.starts_with("two")) continue;  // fewer nodes than groups
      // A parent that contributes nothing makes two steps do, where its lines carry all at the same time.
      if (named.name != "one parent" && !named.name.starts_with("two"))
        EXPECT_GE(named.cost.steps, least.steps) << nodes;
      EXPECT_GE(named.cost.line_bytes, least.line_bytes - 1e-9) << named.name << nodes;
      EXPECT_GE(named.cost.reduced_bytes, least.reduced_bytes - 1e-9) << named.name << nodes;
    }
  }
}

TEST(Collectives, OneNodeNeedsNobody) {
  EXPECT_EQ(ring(1, kBytes).seconds(kLine), 0);
  EXPECT_EQ(halving_doubling(1, kBytes).seconds(kLine), 0);
  EXPECT_EQ(binomial_tree(1, kBytes).seconds(kLine), 0);
  EXPECT_EQ(lower_bound(1, kBytes).seconds(kLine), 0);
}

TEST(Collectives, TwoLevelsAreListedOnlyWithGroups) {
  EXPECT_EQ(all_collectives(4, 0, kBytes).size(), 5U);
  EXPECT_EQ(all_collectives(4, 2, kBytes).size(), 6U);
}

}  // namespace
}  // namespace fluvial::cli::bound

#include "tests/chaos/faults.h"

#include <gtest/gtest.h>

#include <set>

namespace fluvial::chaos {
namespace {

using namespace std::chrono_literals;

const std::map<std::string, std::string> kNodes = {{"coordinator", "coordinator"},
                                                   {"aggregator-1", "aggregator"},
                                                   {"aggregator-2", "aggregator"},
                                                   {"site-1", "site"},
                                                   {"site-2", "site"},
                                                   {"site-3", "site"}};

const std::vector<FaultKind> kKinds = {FaultKind::kKill,     FaultKind::kStop, FaultKind::kStopAndKill,
                                       FaultKind::kPowerCut, FaultKind::kDisk, FaultKind::kNetwork};

TEST(Faults, AreAFunctionOfTheSeed) {
  FaultSource one(7, kNodes, 1, kKinds), same(7, kNodes, 1, kKinds), other(8, kNodes, 1, kKinds);
  bool differs = false;
  for (int i = 0; i < 200; ++i) {
    const Fault a = one.next(), b = same.next(), c = other.next();
    EXPECT_EQ(a.at, b.at);
    EXPECT_EQ(a.node, b.node);
    EXPECT_EQ(a.end(), b.end());
    EXPECT_EQ(a.detail, b.detail);
    differs = differs || a.node != c.node || a.at != c.at;
  }
  EXPECT_TRUE(differs);
}

TEST(Faults, ComeOftenToEverybodyInEveryKindAndNeverToWhoIsOut) {
  FaultSource source(1, kNodes, 1, kKinds);
  std::map<std::string, Milliseconds> out_until;
  std::set<std::pair<std::string, FaultKind>> seen;
  Milliseconds before{0};
  for (int i = 0; i < 1'000; ++i) {
    const Fault fault = source.next();
    EXPECT_GE(fault.at - before, 500ms);
    EXPECT_GE(fault.at, out_until[fault.node]) << fault.node;
    before = fault.at;
    out_until[fault.node] = fault.end();
    seen.insert({fault.node, fault.kind});
  }
  EXPECT_EQ(seen.size(), kNodes.size() * kKinds.size() - 3) << "a site has no network of its own";
}

TEST(Faults, GoOnWithOneNodeAlone) {
  FaultSource source(1, {{"coordinator", "coordinator"}}, 8, kKinds);
  Milliseconds out_until{0};
  for (int i = 0; i < 20; ++i) {
    const Fault fault = source.next();
    EXPECT_GE(fault.at, out_until);
    out_until = fault.end();
  }
}

}  // namespace
}  // namespace fluvial::chaos

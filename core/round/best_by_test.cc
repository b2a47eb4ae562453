#include "core/round/best_by.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace fluvial::round {
namespace {

TEST(BestBy, ANameMayBeFollowedByWhichIsBetter) {
  EXPECT_EQ(parse_best_by("").value(), std::nullopt);
  EXPECT_EQ(parse_best_by("loss").value(), (BestBy{"loss", false}));
  EXPECT_EQ(parse_best_by("loss:min").value(), (BestBy{"loss", false}));
  EXPECT_EQ(parse_best_by("test:accuracy:max").value(), (BestBy{"test:accuracy", true}));
  EXPECT_EQ(parse_best_by(std::string(64, 'm')).value()->metric.size(), 64U);
  for (const std::string text : {":max", "two words", "a\n", "\xc3\xa4"}) {
    EXPECT_FALSE(parse_best_by(text).ok()) << text;
  }
  EXPECT_FALSE(parse_best_by(std::string(65, 'm')).ok());
}

TEST(BestBy, TheFirstOfEqualsStays) {
  const BestBy least{"loss", false}, greatest{"accuracy", true};
  EXPECT_TRUE(least.is_better(2, std::nullopt));
  EXPECT_TRUE(least.is_better(1, 2));
  EXPECT_FALSE(least.is_better(2, 2));
  EXPECT_FALSE(least.is_better(3, 2));
  EXPECT_TRUE(greatest.is_better(3, 2));
  EXPECT_FALSE(greatest.is_better(2, 2));
  EXPECT_FALSE(greatest.is_better(1, 2));
  EXPECT_FALSE(greatest.is_better(std::numeric_limits<double>::infinity(), std::nullopt));
  EXPECT_FALSE(least.is_better(std::nan(""), std::nullopt));
}

TEST(BestBy, FindsItsMetric) {
  const BestBy by{"loss", false};
  EXPECT_EQ(by.of({{"loss", 0.5}, {"accuracy", 1}}), 0.5);
  EXPECT_EQ(by.of({{"accuracy", 1}}), std::nullopt);
  EXPECT_EQ(by.of({{"loss", std::nan("")}}), std::nullopt);
}

}  // namespace
}  // namespace fluvial::round

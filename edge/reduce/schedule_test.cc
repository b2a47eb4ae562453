#include "edge/reduce/schedule.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <map>
#include <tuple>

namespace fluvial::edge {
namespace {

constexpr std::size_t kValues = 61;  // no number of ranks divides it

// Which workers are in each value of a place, and how often.
using Content = std::vector<std::map<std::size_t, int>>;

class Schedule : public testing::TestWithParam<std::tuple<Algorithm, std::size_t>> {
 protected:
  Algorithm algorithm() const { return std::get<0>(GetParam()); }
  std::size_t ranks() const { return std::get<1>(GetParam()); }
};

class Symbols {
 public:
  std::map<std::size_t, int> at(const Place& place, std::size_t value) const {
    if (place.kind == Place::Kind::kWorker) return {{place.rank, 1}};
    return contents_.at(key(place)).at(value);
  }
  void set(const Place& place, std::size_t value, std::map<std::size_t, int> workers) {
    contents_.try_emplace(key(place), Content(kValues)).first->second.at(value) = std::move(workers);
  }

 private:
  static std::pair<Place::Kind, std::size_t> key(const Place& place) { return {place.kind, place.rank}; }
  std::map<std::pair<Place::Kind, std::size_t>, Content> contents_;
};

TEST_P(Schedule, EveryValueHoldsEveryWorkerOnce) {
  Symbols symbols;
  for (const Step& step : make_schedule(algorithm(), ranks(), kValues)) {
    const Symbols before = symbols;  // sums of a step do not see each other
    for (const Sum& sum : step) {
      for (std::size_t value = sum.first; value < sum.first + sum.count; ++value) {
        std::map<std::size_t, int> workers;
        for (const Place& place : sum.of) {
          for (const auto& [worker, times] : before.at(place, value)) workers[worker] += times;
        }
        symbols.set(sum.into, value, std::move(workers));
      }
    }
  }
  for (std::size_t value = 0; value < kValues; ++value) {
    const auto workers = symbols.at(Place{}, value);
    EXPECT_EQ(workers.size(), ranks()) << value;
    for (const auto& [worker, times] : workers) EXPECT_EQ(times, 1) << "worker " << worker << ", value " << value;
  }
}

bool overlap(const Sum& a, const Sum& b) { return a.first < b.first + b.count && b.first < a.first + a.count; }

TEST_P(Schedule, SumsOfAStepMayRunSideBySide) {
  for (const Step& step : make_schedule(algorithm(), ranks(), std::size_t{1} << 20)) {
    for (const Sum& writes : step) {
      for (const Sum& other : step) {
        if (&writes == &other || !overlap(writes, other)) continue;
        EXPECT_NE(writes.into, other.into);
        for (const Place& place : other.of) EXPECT_NE(place, writes.into);
      }
    }
  }
}

struct Cost {
  std::size_t steps = 0;
  std::size_t values = 0;  // read and written, a value of the result
};
Cost documented(Algorithm algorithm, std::size_t p) {
  const auto base = std::bit_floor(p);
  switch (algorithm) {
    case Algorithm::kDirect: return {1, p + 1};
    case Algorithm::kRing: return {p - 1, 3 * (p - 1)};
    case Algorithm::kHalvingDoubling:
      return {static_cast<std::size_t>(std::bit_width(base) - 1 + (p == base ? 0 : 1)), 3 * (p - 1)};
    case Algorithm::kTree: return {static_cast<std::size_t>(std::bit_width(p - 1)), 3 * (p - 1)};
    case Algorithm::kTwoLevel: {
      const auto size = static_cast<std::size_t>(std::ceil(std::sqrt(static_cast<double>(p))));
      const std::size_t groups = p / size + (p % size > 1 ? 1 : 0);
      return {2, p + 1 + 2 * groups};
    }
  }
  return {};
}

TEST_P(Schedule, TakesTheStepsAndBytesThatAreDocumented) {
  constexpr std::size_t kMany = std::size_t{1} << 12;  // divisible by whatever a power of two of ranks divides it by
  const std::vector<Step> steps = make_schedule(algorithm(), ranks(), kMany);
  std::size_t values = 0;
  for (const Step& step : steps) {
    for (const Sum& sum : step) values += sum.count * (sum.of.size() + 1);
  }
  // Two of two levels are one.
  const Cost cost = documented(ranks() == 2 ? Algorithm::kDirect : algorithm(), ranks());
  EXPECT_EQ(steps.size(), cost.steps);
  EXPECT_EQ(values, cost.values * kMany);
}

INSTANTIATE_TEST_SUITE_P(All, Schedule,
                         testing::Combine(testing::ValuesIn(kAlgorithms), testing::Values(2, 3, 4, 7, 8, 64)),
                         [](const auto& info) {
                           return std::string(algorithm_name(std::get<0>(info.param))) + "_" +
                                  std::to_string(std::get<1>(info.param));
                         });

TEST(Schedule, OfOneOrOfNothing) {
  for (const Algorithm algorithm : kAlgorithms) {
    const std::vector<Step> one = make_schedule(algorithm, 1, 10);
    ASSERT_EQ(one.size(), 1u);
    EXPECT_EQ(one.front().front().of, (std::vector<Place>{{Place::Kind::kWorker, 0}}));
    EXPECT_TRUE(make_schedule(algorithm, 3, 0).empty());
  }
}

TEST(Algorithm, HasAName) {
  for (const Algorithm algorithm : kAlgorithms) EXPECT_EQ(*parse_algorithm(algorithm_name(algorithm)), algorithm);
  EXPECT_EQ(parse_algorithm("star").error().message,
            "'star' is no reduction; there are direct, ring, halving_doubling, tree, two_level");
}

}  // namespace
}  // namespace fluvial::edge

#include "edge/reduce/cost.h"

#include <gmock/gmock.h>

namespace fluvial::edge {
namespace {

constexpr std::size_t kSizes[] = {1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22};

std::vector<Timing> timed(const CostModel& model, std::size_t ranks) {
  std::vector<Timing> timings;
  for (const std::size_t values : kSizes) {
    for (const Algorithm algorithm : {Algorithm::kDirect, Algorithm::kTree}) {
      Timing timing{work_of(make_schedule(algorithm, ranks, values))};
      timing.seconds = predict(model, timing.work);
      timings.push_back(timing);
    }
  }
  return timings;
}

TEST(Fit, FindsTheCostsAgain) {
  const CostModel model{2e-6, 1e-10, 3e-10};
  for (const std::size_t ranks : {2, 4, 7}) {
    const CostModel found = fit(timed(model, ranks));
    for (const Algorithm algorithm : kAlgorithms) {
      const Work work = work_of(make_schedule(algorithm, ranks, 1 << 20));
      EXPECT_NEAR(predict(found, work) / predict(model, work), 1, 0.02) << ranks << algorithm_name(algorithm);
    }
  }
}

TEST(Fit, NoCostIsNegative) {
  std::vector<Timing> timings = timed({1e-6, 1e-10, 0}, 4);
  for (std::size_t i = 0; i < timings.size(); ++i) timings[i].seconds *= i % 2 == 0 ? 1.5 : 0.6;  // a noisy machine
  const CostModel found = fit(timings);
  EXPECT_GE(found.alpha, 0);
  EXPECT_GE(found.beta, 0);
  EXPECT_GE(found.gamma, 0);
  EXPECT_GT(found.alpha + found.beta + found.gamma, 0);
  EXPECT_EQ(fit({}).beta, 0);
}

TEST(Choose, TakesWhatTakesLeastAndSaysWhy) {
  const Choice choice = choose({1e-6, 1e-10, 1e-10}, 8, 1 << 20);
  for (const double seconds : choice.seconds) EXPECT_LE(choice.seconds[0], seconds);
  EXPECT_EQ(choice.algorithm, Algorithm::kDirect) << "one pass over all moves the least within one memory";
  for (const Algorithm algorithm : kAlgorithms) {
    EXPECT_THAT(choice.reason, testing::HasSubstr(std::string(algorithm_name(algorithm)) + " "));
  }
}

TEST(Choose, WhereNothingIsKnownTheSimplest) { EXPECT_EQ(choose({}, 4, 1000).algorithm, Algorithm::kDirect); }

TEST(Measure, TimesWhatItRan) {
  double clock = 0;
  const std::vector<Timing> timings = measure(3, [&clock] { return clock += 1; });
  ASSERT_GE(timings.size(), 6u) << "as many sizes as a fit wants";
  for (const Timing& timing : timings) {
    EXPECT_EQ(timing.seconds, 1);
    EXPECT_GT(timing.work.bytes, 0);
  }
}

}  // namespace
}  // namespace fluvial::edge

#include "core/base/backoff.h"

#include <gtest/gtest.h>

#include <set>

namespace fluvial {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Backoff, GrowsUpToItsCapAndStaysInItsBand) {
  Backoff backoff({.first = milliseconds(100), .cap = seconds(2), .factor = 2, .jitter = 0.5}, Rng(1));
  Duration nominal = milliseconds(100);
  for (int attempt = 0; attempt < 40; ++attempt) {
    const Duration wait = backoff.next();
    EXPECT_GE(wait, nominal / 2) << attempt;
    EXPECT_LE(wait, nominal) << attempt;
    nominal = std::min<Duration>(2 * nominal, seconds(2));
  }
}

TEST(Backoff, WithoutJitterIsExact) {
  Backoff backoff({.first = milliseconds(100), .cap = milliseconds(350), .factor = 2, .jitter = 0}, Rng(1));
  EXPECT_EQ(backoff.next(), milliseconds(100));
  EXPECT_EQ(backoff.next(), milliseconds(200));
  EXPECT_EQ(backoff.next(), milliseconds(350));
  EXPECT_EQ(backoff.next(), milliseconds(350));
  backoff.reset();
  EXPECT_EQ(backoff.next(), milliseconds(100));
}

TEST(Backoff, BeginsAnewOnlyAfterWhatLastedLongerThanTheWaitBefore) {
  Backoff backoff({std::chrono::milliseconds(100), std::chrono::seconds(1), 2, 0}, Rng(1));
  EXPECT_EQ(backoff.next_after(std::nullopt), std::chrono::milliseconds(100));
  EXPECT_EQ(backoff.next_after(std::chrono::milliseconds(99)), std::chrono::milliseconds(200));
  EXPECT_EQ(backoff.next_after(std::nullopt), std::chrono::milliseconds(400));
  EXPECT_EQ(backoff.next_after(std::chrono::milliseconds(400)), std::chrono::milliseconds(100));
}

TEST(Backoff, ACrowdSpreadsOut) {
  std::set<Duration> waits;
  for (std::uint64_t site = 0; site < 100; ++site) waits.insert(Backoff({}, Rng(site)).next());
  EXPECT_GT(waits.size(), 95u);
}

TEST(Backoff, TheSameSeedWaitsTheSame) {
  Backoff one({}, Rng(7));
  Backoff two({}, Rng(7));
  for (int i = 0; i < 10; ++i) EXPECT_EQ(one.next(), two.next());
}

}  // namespace
}  // namespace fluvial

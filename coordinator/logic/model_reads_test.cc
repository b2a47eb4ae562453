#include "coordinator/logic/model_reads.h"

#include <gtest/gtest.h>

namespace fluvial::coordinator {
namespace {

round::ModelKey model(std::uint64_t round) { return {RunId(3), ModelVersion(round)}; }

TEST(ModelReads, OneEntryOfAllPartsThatOnePersonReads) {
  ModelReads reads;
  TimePoint now{};
  EXPECT_TRUE(reads.asked("anna", model(1), now).value());
  for (int part = 0; part < 1'000; ++part, now += std::chrono::minutes(1)) {
    EXPECT_FALSE(reads.asked("anna", model(1), now).value()) << part;
  }
  EXPECT_TRUE(reads.asked("anna", model(2), now).value());
  EXPECT_TRUE(reads.asked("ben", model(1), now).value());
  now += kModelReadRemembered;
  EXPECT_TRUE(reads.asked("anna", model(1), now).value()) << "she comes for it again";
  reads.forget("anna", model(1));
  EXPECT_TRUE(reads.asked("anna", model(1), now).value()) << "no entry says that she did";
}

// Better no model than one that no entry tells of.
TEST(ModelReads, WhoReadsMoreThanIsWrittenIsRefused) {
  ModelReads reads;
  TimePoint now{};
  for (std::uint64_t round = 1; round <= 60; ++round) EXPECT_TRUE(reads.asked("anna", model(round), now).ok()) << round;
  EXPECT_EQ(reads.asked("anna", model(61), now).error().code, Code::kResourceExhausted);
  EXPECT_EQ(reads.asked("anna", model(61), now).error().code, Code::kResourceExhausted) << "it is not remembered";
  EXPECT_FALSE(reads.asked("anna", model(60), now).value()) << "what was begun goes on";
  EXPECT_TRUE(reads.asked("ben", model(61), now).value());
  now += std::chrono::seconds(10);
  EXPECT_TRUE(reads.asked("anna", model(61), now).value());
}

TEST(ModelReads, OnlyTheLatestAreRemembered) {
  ModelReads reads;
  TimePoint now{};
  for (std::uint64_t round = 1; round <= kModelReadsKept + 1; ++round, now += std::chrono::seconds(20)) {
    EXPECT_TRUE(reads.asked("anna", model(round), now).value()) << round;
  }
  EXPECT_FALSE(reads.asked("anna", model(kModelReadsKept + 1), now).value());
  EXPECT_TRUE(reads.asked("anna", model(1), now).value()) << "the oldest made room";
}

}  // namespace
}  // namespace fluvial::coordinator

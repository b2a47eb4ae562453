#include "coordinator/logic/model_reads.h"

#include <gtest/gtest.h>

namespace fluvial::coordinator {
namespace {

class ModelReadsTest : public testing::Test {
 protected:
  static round::ModelKey model(std::uint64_t round) { return {RunId(3), ModelVersion(round)}; }
  // Whether an entry was written for it.
  bool reads(const std::string& person, std::uint64_t round) {
    const Result<bool> asked = reads_.asked(person, model(round), now_);
    EXPECT_TRUE(asked.ok()) << round;
    if (!asked.ok() || !*asked) return false;
    reads_.written(person, model(round), now_);
    return true;
  }
  ModelReads reads_;
  TimePoint now_{};
};

TEST_F(ModelReadsTest, OneEntryOfAllPartsThatOnePersonReads) {
  EXPECT_TRUE(reads("anna", 1));
  for (int part = 0; part < 1'000; ++part, now_ += std::chrono::minutes(1)) EXPECT_FALSE(reads("anna", 1)) << part;
  EXPECT_TRUE(reads("anna", 2));
  EXPECT_TRUE(reads("ben", 1));
  now_ += kModelReadRemembered;
  EXPECT_TRUE(reads("anna", 1)) << "she comes for it again";
}

// Two parts may be asked for at once, and the disk may not take the entry.
TEST_F(ModelReadsTest, UntilTheEntryIsThereEachPartNeedsOne) {
  EXPECT_TRUE(reads_.asked("anna", model(1), now_).value());
  EXPECT_TRUE(reads_.asked("anna", model(1), now_).value());
  reads_.written("anna", model(1), now_);
  EXPECT_FALSE(reads_.asked("anna", model(1), now_).value());
}

// Better no model than one that no entry tells of.
TEST_F(ModelReadsTest, WhoReadsMoreThanIsWrittenIsRefused) {
  for (std::uint64_t round = 1; round <= 60; ++round) EXPECT_TRUE(reads("anna", round)) << round;
  EXPECT_EQ(reads_.asked("anna", model(61), now_).error().code, Code::kResourceExhausted);
  EXPECT_EQ(reads_.asked("anna", model(61), now_).error().code, Code::kResourceExhausted) << "it is not remembered";
  EXPECT_FALSE(reads("anna", 60)) << "what was begun goes on";
  EXPECT_TRUE(reads("ben", 61));
  now_ += std::chrono::seconds(10);
  EXPECT_TRUE(reads("anna", 61));
}

TEST_F(ModelReadsTest, OnlyTheLatestAreRemembered) {
  for (std::uint64_t round = 1; round <= kModelReadsKept + 1; ++round, now_ += std::chrono::seconds(20)) {
    EXPECT_TRUE(reads("anna", round)) << round;
  }
  EXPECT_FALSE(reads("anna", kModelReadsKept + 1));
  EXPECT_TRUE(reads("anna", 1)) << "the oldest made room";
}

}  // namespace
}  // namespace fluvial::coordinator

#include "core/tree/overtaken_models.h"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <vector>

namespace fluvial::tree {
namespace {

using namespace std::chrono_literals;

class OvertakenModelsTest : public testing::Test {
 protected:
  static round::ModelRef ref(std::uint64_t version) { return {RunId(1), ModelVersion(version), {}, 4}; }
  std::shared_ptr<ModelSlot> whole(std::uint64_t version) {
    Buffer bytes(4);
    return std::make_shared<ModelSlot>(io_.get_executor(), ref(version),
                                       *round::Schema::make({{"w", round::DType::kF32, {1}}}),
                                       SharedBytes::from(std::move(bytes)));
  }
  static TimePoint at(Duration since) { return TimePoint(since); }
  net::asio::io_context io_;
  OvertakenModels models_;
};

TEST_F(OvertakenModelsTest, OneIsGivenForAWhileToWhoeverAskedBefore) {
  models_.add(whole(1), at(0s));
  EXPECT_NE(models_.find(ref(1), at(2s)), nullptr);
  EXPECT_EQ(models_.find(ref(2), at(2s)), nullptr);
  EXPECT_EQ(models_.find(ref(1), at(3s)), nullptr);
  EXPECT_EQ(models_.alive(), 0U) << "its memory is not held for longer";
}

TEST_F(OvertakenModelsTest, WhoeverIsBeingSentOneGetsTheRest) {
  const auto sent = whole(1);
  models_.add(sent, at(0s));
  models_.add(whole(2), at(10s));
  EXPECT_FALSE(sent->is_given_up());
  EXPECT_EQ(models_.find(ref(1), at(10s)), nullptr) << "nobody begins with it any more";
}

TEST_F(OvertakenModelsTest, NotManyAreHeldAtOnceHoweverSlowTheChildren) {
  std::vector<std::shared_ptr<ModelSlot>> sent;
  for (std::uint64_t version = 1; version <= 20; ++version) {
    sent.push_back(whole(version));
    models_.add(sent.back(), at(10s * version));
    EXPECT_LE(models_.alive(), OvertakenModels::kMost);
  }
  EXPECT_TRUE(sent[15]->is_given_up());
  EXPECT_FALSE(sent[16]->is_given_up());
}

TEST_F(OvertakenModelsTest, WithTheRunTheyEnd) {
  const auto sent = whole(1);
  models_.add(sent, at(0s));
  models_.clear();
  EXPECT_TRUE(sent->is_given_up());
  EXPECT_EQ(models_.find(ref(1), at(0s)), nullptr);
}

}  // namespace
}  // namespace fluvial::tree

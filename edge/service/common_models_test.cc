// One site fetches for all that share its process; whatever becomes of it, the others get their model.
#include "edge/service/common_models.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "core/base/testing.h"

namespace fluvial::edge {
namespace {

class CommonModelsTest : public testing::Test {
 protected:
  struct Site {
    bool up = true;
    int fetches = 0;
    std::vector<HeldModel> got;
    std::optional<round::ModelRef> flowing = {};
  };

  static CommonModels::Which model(std::uint64_t version, std::uint64_t history = 0, NodeId parent = kParent) {
    round::ModelRef ref;
    ref.run = RunId(1);
    ref.version = ModelVersion(version);
    ref.bytes = 4;
    ref.digest[0] = static_cast<std::byte>(version);
    return {round::HistoryId(history), ref, parent};
  }
  static HeldModel bytes_of(const CommonModels::Which& which) {
    const std::array<std::byte, 4> bytes{};
    return {which.ref, round::Schema(), local::SharedModel::copy_of(bytes).value()};
  }
  void want(Site& site, const CommonModels::Which& which) {
    models_.want(&site, which,
                 {.can_fetch = [&site] { return site.up; },
                  .fetch = [&site] { ++site.fetches; },
                  .here = [&site](HeldModel held) { site.got.push_back(std::move(held)); },
                  .flowing = [&site] { return site.flowing; }});
  }
  void fetched(Site& site, const CommonModels::Which& which) {
    site.got.push_back(models_.fetched(&site, which, bytes_of(which)));
  }

  static constexpr NodeId kParent{2};
  static constexpr NodeId kOther{3};
  Site a_, b_, c_;
  CommonModels models_;
};

// With windows a site leaves a model that is on its way to its end, also one that another fetches.
TEST_F(CommonModelsTest, WhatComesToTheOneThatFetchesComesToAll) {
  for (Site* site : {&a_, &b_}) want(*site, model(1));
  EXPECT_FALSE(models_.flowing(&b_));
  a_.flowing = model(1).ref;
  EXPECT_EQ(models_.flowing(&b_), model(1).ref);
  EXPECT_FALSE(models_.flowing(&a_)) << "that it knows itself";
  EXPECT_FALSE(models_.flowing(&c_)) << "it wants nothing";
  a_.flowing = model(2).ref;
  EXPECT_FALSE(models_.flowing(&b_));
}

TEST_F(CommonModelsTest, OneFetchesAndAllHaveTheSameCopy) {
  for (Site* site : {&a_, &b_}) want(*site, model(1));
  EXPECT_EQ(a_.fetches, 1);
  EXPECT_EQ(b_.fetches, 0);
  fetched(a_, model(1));
  want(c_, model(1));  // comes late
  EXPECT_EQ(c_.fetches, 0);
  for (const Site* site : {&a_, &b_, &c_}) {
    ASSERT_EQ(site->got.size(), 1U);
    EXPECT_EQ(site->got[0].bytes, a_.got[0].bytes);
    EXPECT_EQ(site->got[0].ref, model(1).ref);
  }
}

TEST_F(CommonModelsTest, ACopyGoesWithTheLastThatHoldsIt) {
  want(a_, model(1));
  fetched(a_, model(1));
  a_.got.clear();
  want(b_, model(1));
  EXPECT_EQ(b_.fetches, 1);
}

TEST_F(CommonModelsTest, AnotherFetchesWhenTheFirstCannot) {
  for (Site* site : {&a_, &b_, &c_}) want(*site, model(1));
  Site* first = a_.fetches == 1 ? &a_ : b_.fetches == 1 ? &b_ : &c_;
  first->up = false;
  models_.cannot_fetch(first);
  EXPECT_EQ(a_.fetches + b_.fetches + c_.fetches, 2);
  Site* second = nullptr;
  for (Site* site : {&a_, &b_, &c_}) {
    if (site != first && site->fetches == 1) second = site;
  }
  ASSERT_NE(second, nullptr);
  models_.forget(second);  // it trains another run, or ends
  EXPECT_EQ(a_.fetches + b_.fetches + c_.fetches, 3);
  fetched(*first, model(1));  // it had gone on where it was
  EXPECT_EQ(a_.got.size() + b_.got.size() + c_.got.size(), 2U) << "all but the one that wants it no more";
  EXPECT_TRUE(second->got.empty());
}

TEST_F(CommonModelsTest, WithoutParentsTheFirstToHaveOneFetches) {
  for (Site* site : {&a_, &b_}) site->up = false;
  for (Site* site : {&a_, &b_}) want(*site, model(1));
  EXPECT_EQ(a_.fetches + b_.fetches, 0);
  b_.up = true;
  models_.can_fetch(&b_, kParent);
  EXPECT_EQ(b_.fetches, 1);
  a_.up = true;
  models_.can_fetch(&a_, kParent);
  EXPECT_EQ(a_.fetches, 0);
  fetched(b_, model(1));
  EXPECT_EQ(a_.got.size(), 1U);
}

TEST_F(CommonModelsTest, WhoFetchesIsAskedOnceMoreAndWhoWaitsIsNot) {
  for (Site* site : {&a_, &b_}) want(*site, model(1));
  for (Site* site : {&a_, &b_}) want(*site, model(1));
  EXPECT_EQ(a_.fetches, 2);
  EXPECT_EQ(b_.fetches, 0);
}

TEST_F(CommonModelsTest, ModelsOfOtherVersionsAndHistoriesAreOthers) {
  want(a_, model(1));
  want(b_, model(2));
  want(c_, model(1, 7));
  EXPECT_EQ(a_.fetches, 1);
  EXPECT_EQ(b_.fetches, 1);
  EXPECT_EQ(c_.fetches, 1);
  fetched(a_, model(1));
  EXPECT_TRUE(b_.got.empty());
  EXPECT_TRUE(c_.got.empty());
  want(a_, model(2));
  EXPECT_EQ(a_.fetches, 1);
  fetched(b_, model(2));
  EXPECT_EQ(a_.got.size(), 2U);
}

// What a lying aggregator says of the tensors reaches those below it, and nobody else in the process.
TEST_F(CommonModelsTest, OnlySitesBelowOneParentShare) {
  want(a_, model(1));
  want(b_, model(1, 0, kOther));
  EXPECT_EQ(a_.fetches, 1);
  EXPECT_EQ(b_.fetches, 1);
  fetched(a_, model(1));
  EXPECT_TRUE(b_.got.empty());
  want(c_, model(1, 0, kOther));
  EXPECT_EQ(c_.fetches, 0) << "b fetches it";
  fetched(b_, model(1, 0, kOther));
  ASSERT_EQ(c_.got.size(), 1U);
  EXPECT_EQ(c_.got[0].bytes, b_.got[0].bytes);
}

TEST_F(CommonModelsTest, WhoGoesToAnotherParentSharesThere) {
  for (Site* site : {&a_, &b_}) want(*site, model(1));
  want(c_, model(1, 0, kOther));
  models_.cannot_fetch(&a_);
  models_.can_fetch(&a_, kOther);
  EXPECT_EQ(a_.fetches, 1) << "c fetches for it";
  EXPECT_EQ(b_.fetches, 1) << "it is its turn";
  fetched(c_, model(1, 0, kOther));
  EXPECT_EQ(a_.got.size(), 1U);
  EXPECT_TRUE(b_.got.empty());
}

// Its parent went when all of it was here.
TEST_F(CommonModelsTest, WhatWasWholeBeforeItsParentWentIsForThoseWhoAreThereStill) {
  for (Site* site : {&a_, &b_}) want(*site, model(1));
  models_.can_fetch(&a_, kOther);
  fetched(a_, model(1));
  EXPECT_EQ(b_.got.size(), 1U);
  want(c_, model(1, 0, kOther));
  EXPECT_EQ(c_.fetches, 1) << "a does not hold the turn";
}

}  // namespace
}  // namespace fluvial::edge

// What is left of an update that was too late for every round: damped, in the residual.
#include <gtest/gtest.h>

#include "core/store/site_store_test_support.h"

namespace fluvial::store {
namespace {

class LateUpdate : public SiteStoreTest {
 protected:
  // A submission of six values of 3, of which 0.5 is left if it is late.
  void submit_damped(std::uint64_t round) {
    PendingStart start = start_of(round);
    start.late_factor = 0.5F;
    const auto writer = store->begin_pending(start);
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE((*writer)->write_p(0, values(3)).ok());
    for (std::uint64_t i = 0; i < 2; ++i) ASSERT_TRUE((*writer)->write_chunk(i, as_byte_span(chunk_text(i))).ok());
    ASSERT_TRUE((*writer)->write_trailer(as_byte_span(kTrailer)).ok());
    ASSERT_TRUE((*writer)->finish(digest_of("update")).ok());
  }
};

TEST_F(LateUpdate, IsDampedAfterACrashAsWell) {
  submit_damped(1);
  crash_and_reopen();
  const auto carried = store->resolve(kRun, RoundId(1), Outcome::kLate);
  ASSERT_TRUE(carried.ok());
  EXPECT_DOUBLE_EQ(carried->residual.norm, std::sqrt(6.0) * 1.5);
  EXPECT_EQ(residual_of(*store), values(1.5F));
  crash_and_reopen();
  EXPECT_EQ(residual_of(*store), values(1.5F));
  std::vector<float> one(1);
  ASSERT_TRUE(store->read_residual(kRun, 4, one).ok());
  EXPECT_EQ(one[0], 1.5F) << "from the middle";
}

TEST_F(LateUpdate, IsNotDampedWhenItCounts) {
  submit_damped(1);
  ASSERT_TRUE(count(*store, 1, 1.5F).ok());
  EXPECT_EQ(residual_of(*store), values(1.5F)) << "half of 3 was sent, by the codec";
}

TEST_F(LateUpdate, ThatWasNeverSentIsDampedAlike) {
  auto writer = store->begin_residual(kRun);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->write(0, values(4)).ok());
  const auto carried = store->fold(kRun, RoundId(1), std::move(*writer), {}, {}, false, 0.25F);
  ASSERT_TRUE(carried.ok());
  EXPECT_DOUBLE_EQ(carried->residual.norm, std::sqrt(6.0));
  crash_and_reopen();
  EXPECT_EQ(residual_of(*store), values(1));
}

TEST_F(LateUpdate, WithoutAFactorAllOfItStays) {
  ASSERT_TRUE(submit(*store, 1, 3).ok());
  ASSERT_TRUE(store->resolve(kRun, RoundId(1), Outcome::kLate).ok());
  EXPECT_EQ(residual_of(*store), values(3));
}

// It was not too late for every round that it could enter.
TEST_F(LateUpdate, WhoseRoundARestoreTookAwayIsWhole) {
  submit_damped(5);
  const round::History restored{round::HistoryId(7), Epoch(100), kRun, {{kRun, RoundId(4)}}};
  const auto aside = store->enter({restored}, Epoch(101));
  ASSERT_TRUE(aside.ok());
  ASSERT_EQ(aside->size(), 1U);
  EXPECT_EQ(aside->at(0).late, RoundId(5));
  EXPECT_EQ(residual_of(*store), values(3));
  crash_and_reopen();
  EXPECT_EQ(residual_of(*store), values(3));
}

TEST_F(LateUpdate, ARunThatContinuesInheritsItDamped) {
  submit_damped(1);
  ASSERT_TRUE(store->resolve(kRun, RoundId(1), Outcome::kLate).ok());
  const std::vector<RunId> continues{kRun};
  ASSERT_TRUE(store->begin_run(RunId(9), continues, 6).ok());
  std::vector<float> found(6);
  ASSERT_TRUE(store->read_residual(RunId(9), 0, found).ok());
  EXPECT_EQ(found, values(1.5F));
}

}  // namespace
}  // namespace fluvial::store

#include "core/round/attendance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fluvial::round {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class AttendanceTest : public testing::Test {
 protected:
  // A round of sites 1 and 2 that closes without site 2.
  void close() {
    Gather gather(both_);
    ContributorSet one;
    EXPECT_TRUE(one.add({SiteId(1), Epoch(1), 10, {}, 0, {}}).ok());
    gather.begin_take(one);
    gather.finish_take(one);
    attendance_.closed(gather);
  }
  void refuse() {
    Gather gather(both_);
    gather.refuse({SiteId(2), {Code::kFailedPrecondition, "no"}});
    attendance_.closed(gather);
  }
  const std::vector<Participant> both_{{SiteId(1), Epoch(1), 100}, {SiteId(2), Epoch(1), 100}};
  Attendance attendance_;
};

TEST_F(AttendanceTest, WhoSaysNothingInThreeRoundsRunningIsNotExpected) {
  EXPECT_EQ(attendance_.of(SiteId(2)), Expected::kYes) << "nothing is known";
  for (std::uint32_t i = 0; i + 1 < kSilentFrom; ++i) close();
  EXPECT_THAT(attendance_.unexpected(both_), IsEmpty());
  close();
  EXPECT_EQ(attendance_.of(SiteId(2)), Expected::kSilent);
  EXPECT_THAT(attendance_.unexpected(both_), ElementsAre(SiteId(2)));
  EXPECT_EQ(attendance_.missed(SiteId(2)), kSilentFrom);
  EXPECT_EQ(attendance_.missed(SiteId(1)), 0U);
  EXPECT_TRUE(attendance_.heard(SiteId(2)));
  EXPECT_FALSE(attendance_.heard(SiteId(2))) << "it is expected already";
  EXPECT_THAT(attendance_.unexpected(both_), IsEmpty());
  for (std::uint32_t i = 0; i < kSilentFrom; ++i) close();
  EXPECT_THAT(attendance_.unexpected(both_), IsEmpty()) << "in the first of these it was heard of";
}

TEST_F(AttendanceTest, WhoAnswersOrDeclinesIsExpected) {
  for (std::uint32_t i = 0; i < 3 * kSilentFrom; ++i) {
    attendance_.heard(SiteId(2));
    close();
  }
  EXPECT_EQ(attendance_.of(SiteId(2)), Expected::kYes) << "it is slow";
  EXPECT_EQ(attendance_.missed(SiteId(2)), 3 * kSilentFrom);
  for (std::uint32_t i = 0; i < kSilentFrom; ++i) refuse();
  EXPECT_EQ(attendance_.of(SiteId(2)), Expected::kYes);
}

TEST_F(AttendanceTest, WhoHasNoWorkerIsNotExpectedOnceItWasAskedInVain) {
  attendance_.has_workers(SiteId(2), false);
  EXPECT_EQ(attendance_.of(SiteId(2)), Expected::kYes) << "it is being started";
  close();
  EXPECT_EQ(attendance_.of(SiteId(2)), Expected::kNoWorker);
  EXPECT_FALSE(attendance_.heard(SiteId(2))) << "its agent is here, and cannot train";
  EXPECT_EQ(attendance_.of(SiteId(2)), Expected::kNoWorker);
  for (std::uint32_t i = 0; i < kSilentFrom; ++i) close();
  EXPECT_TRUE(attendance_.has_workers(SiteId(2), true));
  EXPECT_EQ(attendance_.of(SiteId(2)), Expected::kYes);
  EXPECT_FALSE(attendance_.has_workers(SiteId(2), true));
  attendance_.has_workers(SiteId(2), false);
  refuse();
  EXPECT_EQ(attendance_.of(SiteId(2)), Expected::kNoWorker) << "it said so itself";
}

TEST_F(AttendanceTest, WhoGaveAnUpdateHadAWorker) {
  attendance_.has_workers(SiteId(1), false);
  close();
  EXPECT_EQ(attendance_.of(SiteId(1)), Expected::kYes) << "its worker left when it was done";
}

}  // namespace
}  // namespace fluvial::round

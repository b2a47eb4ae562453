// When certificates are renewed.
#include "core/round/renewal.h"

#include <gtest/gtest.h>

namespace fluvial::round {
namespace {

using std::chrono::days;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

const WallTime kIssued(hours(1000));
const CertificateLife kDay{kIssued, kIssued + hours(24)};
const RenewalTerms kIssuesDays{hours(24), false};

TEST(RenewalTest, FromHalfOfTheLifeOnSpreadOverAnEighth) {
  EXPECT_EQ(renew_at(kDay, kIssuesDays, kIssued, 0), kIssued + hours(12));
  EXPECT_EQ(renew_at(kDay, kIssuesDays, kIssued, 0.5), kIssued + hours(12) + minutes(90));
  EXPECT_LT(renew_at(kDay, kIssuesDays, kIssued, 0.999), kIssued + hours(15));
  const CertificateLife seconds_long{kIssued, kIssued + seconds(4)};
  EXPECT_EQ(renew_at(seconds_long, {seconds(4), false}, kIssued, 0), kIssued + seconds(2));
}

TEST(RenewalTest, AnOldFleetMovesOverByItself) {
  const CertificateLife old{kIssued, kIssued + days(90)};
  EXPECT_EQ(renew_at(old, kIssuesDays, kIssued + days(3), 0.9), WallTime::min());
  EXPECT_GT(renew_at(old, {days(90), false}, kIssued + days(3), 0), kIssued + days(44)) << "where 90 days are issued";
  EXPECT_GT(renew_at(old, {}, kIssued + days(3), 0), kIssued + days(44)) << "nobody has said what is issued";
  EXPECT_GT(renew_at(kDay, {hours(13), false}, kIssued, 0), kIssued) << "a little longer is no reason";
}

TEST(RenewalTest, OtherAuthoritiesAtOnce) {
  EXPECT_EQ(renew_at(kDay, {hours(24), true}, kIssued, 0.9), WallTime::min());
}

TEST(RenewalTest, WaitsGrowAndLeaveRoomBeforeTheEnd) {
  const WallTime half = kIssued + hours(12);
  EXPECT_EQ(renewal_retry(kDay, half, 1, 0), seconds(15));
  EXPECT_GT(renewal_retry(kDay, half, 4, 0), renewal_retry(kDay, half, 3, 0));
  EXPECT_LE(renewal_retry(kDay, half, 1000, 0.999), hours(1));
  EXPECT_GE(renewal_retry(kDay, half, 1000, 0), minutes(30));
  WallTime now = half;
  unsigned attempts = 0;
  for (; now < kDay.ends; ++attempts) {
    const Duration wait = renewal_retry(kDay, now, attempts + 1, 0.999);
    ASSERT_GE(wait, milliseconds(50));
    if (kDay.ends - now > seconds(1)) {
      ASSERT_LE(wait, Duration(kDay.ends - now) / 4);
    }
    now += std::chrono::ceil<milliseconds>(wait);
  }
  EXPECT_GE(attempts, 20U);
  EXPECT_LE(attempts, 300U) << "and is no flood";
}

TEST(RenewalTest, AfterTheEndItGoesOnTrying) {
  EXPECT_LE(renewal_retry(kDay, kDay.ends + days(2), 1000, 0.999), minutes(5));
  EXPECT_GE(renewal_retry(kDay, kDay.ends + days(2), 1000, 0), minutes(2));
}

TEST(RenewalTest, AFewSecondsOfLifeAreEnough) {
  const CertificateLife brief{kIssued, kIssued + seconds(4)};
  EXPECT_LE(renewal_retry(brief, kIssued + seconds(2), 1, 0.999), milliseconds(63));
  EXPECT_LE(renewal_retry(brief, kIssued + seconds(2), 9, 0.999), milliseconds(250));
  EXPECT_EQ(renewal_retry({kIssued, kIssued}, kIssued, 3, 0), milliseconds(50)) << "of no life at all";
}

TEST(RenewalTest, ASessionEndsABoundAfterItsCertificate) {
  EXPECT_FALSE(outlives_certificate(kDay.ends, kDay.ends - hours(1), hours(1)));
  EXPECT_FALSE(outlives_certificate(kDay.ends, kDay.ends + hours(1), hours(1)));
  EXPECT_TRUE(outlives_certificate(kDay.ends, kDay.ends + hours(1) + milliseconds(1), hours(1)));
}

}  // namespace
}  // namespace fluvial::round

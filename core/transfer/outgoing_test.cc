#include "core/transfer/outgoing.h"

#include <gtest/gtest.h>

#include "core/wire/mapping.h"

namespace fluvial::transfer {
namespace {

TEST(Outgoing, GoesOnOnlyFromTheSameTransfersOwnChunks) {
  const wire::Received received{Incarnation(2), 5, 3};
  EXPECT_EQ(first_chunk(received, Incarnation(2), 5, 4), 3u);
  EXPECT_EQ(first_chunk(received, Incarnation(2), 5, 3), 3u) << "only the trailer is missing";
  EXPECT_EQ(first_chunk(received, Incarnation(2), 5, 2), 0u) << "more than there are";
  EXPECT_EQ(first_chunk(received, Incarnation(1), 5, 4), 0u);
  EXPECT_EQ(first_chunk(received, Incarnation(2), 6, 4), 0u);
  EXPECT_EQ(first_chunk(std::nullopt, Incarnation(2), 5, 4), 0u);
}

TEST(Outgoing, ASubmissionSaysWhetherItBringsItsProbe) {
  store::PendingInfo info;
  info.start.integer_count = 3;
  info.trailer_bytes = 28;
  EXPECT_EQ(update_begin(info, SiteId(1), Epoch(1), 0).update_begin().probe(), 0.0F);
  info.trailer_bytes = 24;  // encoded before updates brought one
  EXPECT_EQ(update_begin(info, SiteId(1), Epoch(1), 0).update_begin().probe(), 1.0F);
}

TEST(Outgoing, SaysWhichPassItIsAndHowMuchTravelsInIt) {
  store::PendingInfo info;
  info.start.value_count = 1000;
  const v1::UpdateBegin one = update_begin(info, SiteId(1), Epoch(1), 0).update_begin();
  EXPECT_EQ(one.value_count(), 1000u);
  EXPECT_TRUE(one.pass() == 0 && one.mean_sha256().empty()) << "as of a codec with one pass";
  info.start.passes = 2;
  info.start.sent_values = 60;
  EXPECT_EQ(update_begin(info, SiteId(1), Epoch(1), 0).update_begin().value_count(), 60u);
  info.start.from = {1, {std::byte{5}}};
  const v1::UpdateBegin second = update_begin(info, SiteId(1), Epoch(1), 0).update_begin();
  EXPECT_EQ(second.pass(), 1u);
  EXPECT_EQ(second.mean_sha256(), wire::digest_to_proto(info.start.from.mean));
  wire::Opening opening;
  opening.pass = round::Pass{1, 2, 60, round::VectorRef{info.start.from.mean, 40}, {}};
  EXPECT_EQ(partial_begin(opening, Incarnation(1), 1, {}, 0, 0).partial_begin().pass(), 1u);
}

TEST(Outgoing, SaysWhatItsDigestIsOf) {
  store::PendingInfo info;
  EXPECT_EQ(update_begin(info, SiteId(1), Epoch(1), 0).update_begin().digest(), v1::DIGEST_STREAM);
  info.start.digest_kind = DigestKind::kTree;
  EXPECT_EQ(update_begin(info, SiteId(1), Epoch(1), 0).update_begin().digest(), v1::DIGEST_TREE);
  EXPECT_EQ(partial_begin({}, Incarnation(1), 1, {}, 0, 0, DigestKind::kTree).partial_begin().digest(),
            v1::DIGEST_TREE);
}

}  // namespace
}  // namespace fluvial::transfer

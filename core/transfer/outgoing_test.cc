#include "core/transfer/outgoing.h"

#include <gtest/gtest.h>

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

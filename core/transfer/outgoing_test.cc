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

}  // namespace
}  // namespace fluvial::transfer

#include "edge/service/offer.h"

#include <gtest/gtest.h>

namespace fluvial::edge {
namespace {

TEST(Offer, TheCohortIsAllWhomTheStatementNamesAndNotThoseBelowOneParent) {
  v1::OpeningStatement statement;
  for (const std::uint32_t site : {2, 3, 5}) statement.add_sites(site);
  v1::Signed order;
  order.set_body(statement.SerializeAsString());
  EXPECT_EQ(cohort_of(order), 3U);
  order.set_body("no statement");
  EXPECT_FALSE(cohort_of(order));
}

}  // namespace
}  // namespace fluvial::edge

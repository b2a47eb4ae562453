#include "core/aggregate/pass_mean.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace fluvial::aggregate {
namespace {

TEST(PassMean, SaysWhoseItIs) {
  const MeanOf of{Epoch(7), AttemptId(3), 1};
  Buffer mean = begin_mean(of, 5);
  ASSERT_EQ(mean_values(mean).size(), 5u);
  std::ranges::fill(mean_values(mean), 0.5F);
  EXPECT_TRUE(check_mean(of, mean.span()).ok());
  EXPECT_EQ(mean_values(ByteSpan(mean.span()))[4], 0.5F);
  for (const MeanOf& other :
       {MeanOf{Epoch(8), AttemptId(3), 1}, MeanOf{Epoch(7), AttemptId(4), 1}, MeanOf{Epoch(7), AttemptId(3), 0}}) {
    const Status checked = check_mean(other, mean.span());
    EXPECT_EQ(checked.error().code, Code::kDataLoss);
    EXPECT_TRUE(checked.error().message.starts_with("a mean of pass 2 of attempt 3, ")) << checked.error().message;
    Buffer alike = begin_mean(other, 5);
    std::ranges::fill(mean_values(alike), 0.5F);
    EXPECT_FALSE(std::ranges::equal(alike.span(), mean.span())) << "alike in its values alone";
  }
  for (const std::size_t size : {std::size_t{0}, kMeanHeadBytes - 4, kMeanHeadBytes + 2}) {
    EXPECT_FALSE(check_mean(of, Buffer(size).span()).ok()) << size;
  }
}

}  // namespace
}  // namespace fluvial::aggregate

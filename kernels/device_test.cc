#include "kernels/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fluvial::kernels {
namespace {

TEST(Device, AnswersWithDevicesOrWithAReason) {
  const Result<int> count = cuda_device_count();
  if (!count.ok()) {
    EXPECT_EQ(count.error().code, Code::kUnavailable);
    EXPECT_THAT(count.error().message, ::testing::HasSubstr("CUDA"));
    EXPECT_EQ(cuda_device(0).error(), count.error());
    return;
  }
  EXPECT_TRUE(cuda_built());
  ASSERT_GT(*count, 0);
  const CudaDevice first = cuda_device(0).value();
  EXPECT_FALSE(first.name.empty());
  EXPECT_GE(first.compute_major, 7);
  EXPECT_GT(first.memory_bytes, 0U);
  EXPECT_EQ(cuda_device(*count).error().code, Code::kInvalidArgument);
  EXPECT_EQ(cuda_device(-1).error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace fluvial::kernels

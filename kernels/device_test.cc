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

TEST(Device, HasANameThatReadsBack) {
  for (const Device device : {Device::cpu(), Device::cuda(), Device::cuda(7), Device{DeviceKind::kEmulated, 0},
                              Device{DeviceKind::kEmulated, 3}}) {
    EXPECT_EQ(parse_device(to_string(device)).value(), device);
  }
  EXPECT_EQ(parse_device("cuda").value(), Device::cuda());
  EXPECT_EQ(parse_device("emulated").value(), (Device{DeviceKind::kEmulated, 0}));
  for (const auto* const text :
       {"", "gpu", "cpu:0", "cuda:", "cuda:-1", "cuda:1024", "cuda:1x", "cudas", "emulated:"}) {
    EXPECT_EQ(parse_device(text).error().code, Code::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace fluvial::kernels

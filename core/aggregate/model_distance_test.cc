#include "core/aggregate/model_distance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

namespace fluvial::aggregate {
namespace {

Buffer of_floats(const std::vector<float>& values, std::size_t size) {
  Buffer bytes(size);
  std::memset(bytes.data(), 0, size);
  std::memcpy(bytes.data(), values.data(), values.size() * sizeof(float));
  return bytes;
}

// 3, 4 and 12: 13.
TEST(ModelDistance, IsThe2NormByHand) {
  const round::Schema schema =
      round::Schema::make({{"a", round::DType::kF32, {2}}, {"b", round::DType::kF32, {1}}}).value();
  const Buffer a = of_floats({1, 2, -5}, schema.model_bytes());
  const Buffer b = of_floats({4, -2, 7}, schema.model_bytes());
  Serial serial;
  EXPECT_DOUBLE_EQ(model_distance(serial, schema, a.span(), b.span()), 13);
  EXPECT_EQ(model_distance(serial, schema, a.span(), a.span()), 0);
}

// Integers are the same in both forms of a model; whatever they are, they are not counted.
TEST(ModelDistance, LeavesIntegersOut) {
  const round::Schema schema =
      round::Schema::make({{"count", round::DType::kI64, {1}}, {"w", round::DType::kF32, {1}}}).value();
  Buffer a(schema.model_bytes()), b(schema.model_bytes());
  std::memset(a.data(), 0, a.size());
  std::memset(b.data(), 0, b.size());
  const std::size_t count = schema.tensors()[0].name == "count" ? 0 : 1;
  b.data()[schema.tensor_offset_bytes(count)] = std::byte{9};
  const float moved = 2.5F;
  std::memcpy(b.data() + schema.tensor_offset_bytes(1 - count), &moved, sizeof moved);
  Serial serial;
  EXPECT_DOUBLE_EQ(model_distance(serial, schema, a.span(), b.span()), 2.5);
}

// 2^20 values a piece, and 1,024 a block: a value on either side of each border.
TEST(ModelDistance, CountsEachValueOnceAcrossPieces) {
  constexpr std::uint64_t kCount = (std::uint64_t{1} << 20) + 1027;
  const round::Schema schema = round::Schema::make({{"w", round::DType::kF32, {kCount}}}).value();
  std::vector<float> values(kCount);
  const Buffer zero = of_floats(values, schema.model_bytes());
  for (const std::uint64_t at :
       {std::uint64_t{0}, std::uint64_t{1023}, std::uint64_t{1024}, (std::uint64_t{1} << 20) - 1,
        std::uint64_t{1} << 20, (std::uint64_t{1} << 20) + 1024, kCount - 1}) {
    values[at] = 3;
  }
  Serial serial;
  EXPECT_DOUBLE_EQ(model_distance(serial, schema, of_floats(values, schema.model_bytes()).span(), zero.span()),
                   std::sqrt(7 * 9.0));
}

}  // namespace
}  // namespace fluvial::aggregate

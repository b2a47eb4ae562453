// fp16 and bf16: the conversions against naive ones, on every target.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/dense_loops.h"
#include "kernels/ops/bits.h"
#include "kernels/ops/fp16.h"
#include "kernels/reference/reference.h"
#include "kernels/test_values.h"

namespace fluvial::kernels {
namespace {

// value rounded half to even to `digits` binary digits, with the last place at least 2^least; at most `most`.
double rounded(double value, int digits, int least, double most) {
  int exponent = 0;
  std::frexp(value, &exponent);
  const int place = std::max(exponent - digits, least);
  const double result = std::ldexp(std::nearbyint(std::ldexp(value, -place)), place);
  return std::clamp(result, -most, most);
}

// Bits from all over, of which one in `step` is taken; finite ones.
std::vector<float> sweep(std::uint64_t step) {
  std::vector<float> values;
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += step) {
    if ((bits & ops::kMagnitudeMask) < ops::kInfinityBits) {
      values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
    }
  }
  for (const double edge : {0x1p-25, 0x1p-24, 0x1.8p-24, 0x1p-14, 65504.0, 65519.99, 65520.0, 65536.0, 0x1.ffcp15}) {
    for (const float value : {static_cast<float>(edge), -static_cast<float>(edge)}) {
      values.insert(values.end(), {value, std::nextafter(value, 0.0F), std::nextafter(value, 2 * value)});
    }
  }
  return values;
}

TEST(Fp16, EncodesToTheNearestOnEveryTarget) {
  const std::vector<float> values = sweep(4'093);
  for (const cpu::Target target : cpu::supported_targets()) {
    const auto codec = test_values::codec_of("fp16", target);
    const std::vector<float> decoded = test_values::decode(*codec, test_values::encode(*codec, values, 1 << 20));
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(static_cast<double>(decoded[i]), rounded(static_cast<double>(values[i]), 11, -24, 65504.0))
          << values[i] << " on " << cpu::target_name(target);
      ASSERT_EQ(std::signbit(decoded[i]), std::signbit(values[i]));
    }
  }
}

TEST(Bf16, EncodesToTheNearestOnEveryTarget) {
  const std::vector<float> values = sweep(4'091);
  for (const cpu::Target target : cpu::supported_targets()) {
    const auto codec = test_values::codec_of("bf16", target);
    const std::vector<float> decoded = test_values::decode(*codec, test_values::encode(*codec, values, 1 << 20));
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(static_cast<double>(decoded[i]), rounded(static_cast<double>(values[i]), 8, -133, 0x1.fep127))
          << values[i] << " on " << cpu::target_name(target);
    }
  }
}

TEST(Fp16, DecodesEveryHalfOnEveryTarget) {
  constexpr std::size_t kHalves = 65'536;
  std::vector<std::byte> bytes(2 * kHalves);
  for (std::size_t i = 0; i < kHalves; ++i) store_le(bytes.data() + 2 * i, static_cast<std::uint16_t>(i));
  std::vector<float> scalar(kHalves);
  for (std::size_t i = 0; i < kHalves; ++i) scalar[i] = ops::float_from_fp16(static_cast<std::uint16_t>(i));
  for (const cpu::Target target : cpu::supported_targets()) {
    std::vector<float> decoded(kHalves);
    cpu::dense_loops(target).fp16.decode(bytes.data(), kHalves, 1, decoded.data());
    ASSERT_EQ(test_values::bits_of(decoded), test_values::bits_of(scalar)) << cpu::target_name(target);
  }
  for (std::size_t i = 0; i < kHalves; ++i) {
    const auto value = reference::decode("fp16", std::span(bytes).subspan(2 * i, 2), 1);
    ASSERT_EQ(value.has_value(), std::isfinite(scalar[i])) << i;
    if (value) {
      ASSERT_EQ(static_cast<double>(scalar[i]), (*value)[0]) << i;
      ASSERT_EQ(ops::fp16_from_float(scalar[i]), i);  // every finite half is itself
    }
  }
}

// Values that are not finite convert alike on every target, too, although encode_chunk refuses them.
TEST(Fp16, LoopsAgreeOnWhatIsNotFinite) {
  std::vector<float> values;
  for (const std::uint32_t bits : {0x7f800000U, 0xff800000U, 0x7f800001U, 0x7fc00000U, 0xffffffffU, 0x7f7fffffU}) {
    values.insert(values.end(), 17, std::bit_cast<float>(bits));
  }
  for (const cpu::Target target : cpu::supported_targets()) {
    std::vector<std::byte> bytes(2 * values.size());
    EXPECT_EQ(cpu::dense_loops(target).fp16_encode(values.data(), values.size(), bytes.data()), 0x7fffffffU);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(load_le<std::uint16_t>(bytes.data() + 2 * i), ops::fp16_from_float(values[i]));
    }
  }
}

TEST(Float, FindsWhatIsNotFiniteEverywhereOnEveryTarget) {
  for (const cpu::Target target : cpu::supported_targets()) {
    for (const char* text : {"fp16", "bf16", "int8", "int4:rounding=nearest"}) {
      const auto codec = test_values::codec_of(text, target);
      const VectorSchema schema{.layout = {.value_count = 67, .chunk_values = 67}, .tensors = {}};
      Buffer out(codec->encoded_bytes_max(67));
      for (std::size_t at = 0; at < 67; ++at) {
        std::vector<float> vector(67, std::numeric_limits<float>::max());
        EXPECT_TRUE(codec->encode_chunk({.layout = schema.layout}, 0, vector, out.span()).ok());
        vector[at] = std::bit_cast<float>(0xff800000U + static_cast<std::uint32_t>(at % 2));  // -Inf or a NaN
        EXPECT_FALSE(codec->encode_chunk({.layout = schema.layout}, 0, vector, out.span()).ok()) << text << " " << at;
      }
    }
  }
}

TEST(Float, NamesTheCoordinateThatIsNotFinite) {
  for (const char* text : {"fp16", "bf16"}) {
    const auto codec = test_values::codec_of(text);
    const VectorSchema schema{.layout = {.value_count = 9'000, .chunk_values = 5'000}, .tensors = {}};
    std::vector<float> vector(9'000, 1.0F);
    vector[8'765] = -std::numeric_limits<float>::infinity();
    const EncodePlan plan = codec->prepare(schema, vector, {}, {}, {}, {}).value();
    Buffer out(codec->encoded_bytes_max(5'000));
    std::vector<float> residual(4'000);
    const auto chunk = std::span<const float>(vector).last(4'000);
    const auto refused = codec->encode_chunk(plan, 1, chunk, out.span());
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
    EXPECT_EQ(refused.error().message,
              std::string(text) + " cannot encode: value 8765 is infinite, expected a finite number");
    EXPECT_FALSE(codec->encode_residual_chunk(plan, 1, chunk, out.span(), residual).ok());
  }
}

}  // namespace
}  // namespace fluvial::kernels

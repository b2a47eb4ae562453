// The byte form of 1-bit Adam's states: golden bytes, and refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/onebit_adam.h"
#include "kernels/test_values.h"

namespace fluvial::kernels {
namespace {

using ::testing::HasSubstr;
using Floats = std::vector<float>;

std::string saved_hex(const auto& state) {
  Buffer bytes(saved_bytes(state));
  save(state, bytes.span());
  return to_hex(bytes.span());
}

// docs/formats/onebit-adam.md
TEST(OnebitAdamState, GoldenBytes) {
  Floats momentum = {1.0F, -2.5F}, variance = {0.5F, 0.0F}, residual = {-1.0F, 0.25F};
  const std::string tail = "0000803f000020c0";
  EXPECT_EQ(saved_hex(OnebitAdamSite{258, momentum, residual}),
            "010000000000000002010000000000000200000000000000" + tail + "000080bf0000803e");
  EXPECT_EQ(saved_hex(OnebitAdamServer{7, momentum, variance, {}}),
            "010100000000000007000000000000000200000000000000" + tail + "0000003f00000000");
  EXPECT_EQ(saved_hex(OnebitAdamServer{7, momentum, variance, residual}),
            "010200000000000007000000000000000200000000000000" + tail + "0000003f00000000000080bf0000803e");
  EXPECT_EQ(saved_hex(OnebitAdamSite{}), "010000000000000000000000000000000000000000000000");
}

TEST(OnebitAdamState, LoadsWhatWasSavedFromAnyAddress) {
  const Floats values = test_values::adversarial(5'001, 3, std::numeric_limits<float>::max());
  Floats momentum = values, residual(values.rbegin(), values.rend());
  const OnebitAdamSite saved{~0ULL, momentum, residual};
  Buffer bytes(saved_bytes(saved) + 1);
  save(saved, bytes.span().subspan(1));
  Floats m(5'001), r(5'001);
  OnebitAdamSite state{0, m, r};
  ASSERT_TRUE(load(bytes.span().subspan(1), &state).ok());
  EXPECT_EQ(state.round, ~0ULL);
  EXPECT_EQ(test_values::bits_of(m), test_values::bits_of(momentum));
  EXPECT_EQ(test_values::bits_of(r), test_values::bits_of(residual));
}

TEST(OnebitAdamState, RefusesOtherBytesAndStaysAsItWas) {
  Floats momentum = {1.0F, -2.5F}, variance = {0.5F, 0.0F}, residual = {-1.0F, 0.25F};
  const std::string good = saved_hex(OnebitAdamServer{7, momentum, variance, residual});
  const auto refused = [&](std::string hex, std::string_view reason) {
    Floats m(2, 9.0F), v(2, 9.0F), r(2, 9.0F);
    OnebitAdamServer state{3, m, v, r};
    const Status status = load(from_hex(hex)->span(), &state);
    ASSERT_FALSE(status.ok()) << reason;
    EXPECT_EQ(status.error().code, Code::kDataLoss);
    EXPECT_THAT(status.error().message, HasSubstr(reason));
    EXPECT_EQ(state.round, 3U);
    EXPECT_EQ(m, Floats(2, 9.0F));
    EXPECT_EQ(v, Floats(2, 9.0F));
    EXPECT_EQ(r, Floats(2, 9.0F));
  };
  const auto with = [&](std::size_t byte, std::string_view hex) {
    std::string bytes = good;
    return bytes.replace(2 * byte, hex.size(), hex);
  };
  for (std::size_t size = 0; size < good.size(); size += 2) refused(good.substr(0, size), "bytes, expected 48");
  refused(good + "00", "49 bytes, expected 48");
  refused(with(0, "02"), "version 2, expected 1");
  refused(with(1, "01"), "part 1, expected 2");
  refused(with(7, "01"), "not zero where it should be");
  refused(with(16, "03"), "3 values, expected 2");
  refused(with(23, "01"), "values, expected 2");
  refused(with(24 + 6, "807f"), "momentum value 1 is infinite");
  refused(with(24 + 10, "c07f"), "variance value 0 is NaN");
  refused(with(24 + 10, "00bf"), "variance value 0 is -0.5, expected at least 0");
  refused(with(24 + 22, "c0ff"), "residual value 1 is NaN");
}

}  // namespace
}  // namespace fluvial::kernels

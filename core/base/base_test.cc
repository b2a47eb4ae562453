#include <gtest/gtest.h>

#include <set>

#include "core/base/bytes.h"
#include "core/base/format.h"
#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/base/rng.h"

namespace fluvial {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) return Error{Code::kInvalidArgument, "odd"};
  return value / 2;
}
Result<int> quarter(int value) {
  FLUVIAL_ASSIGN(const int first, half(value));
  return half(first);
}

TEST(FormatText, PutsArgumentsInTurn) {
  EXPECT_EQ(format_text("{} of {}: {}", 1, std::size_t{20}, "why"), "1 of 20: why");
  EXPECT_EQ(format_text("{}|{}|{}", 0.1, -3.0F, 1e300), "0.1|-3|1e+300");
  EXPECT_EQ(format_text("{} {} {}", true, 'x', std::string("{}")), "true x {}");
  EXPECT_EQ(format_text("{} {}", 1), "1 {}");
  EXPECT_EQ(format_text("none", 1), "none");
}

TEST(Result, CarriesTheFirstErrorUp) {
  EXPECT_EQ(*quarter(12), 3);
  ASSERT_FALSE(quarter(6).ok());
  EXPECT_EQ(quarter(6).error().to_string(), "invalid_argument: odd");
}

TEST(ResultDeathTest, AValueThatIsNotThereStopsTheProcess) { EXPECT_DEATH((void)half(1).value(), "broken invariant"); }

TEST(Bytes, HexRoundTripsAndRefusesWhatIsNotHex) {
  const Result<Buffer> bytes = from_hex("00ff7a");
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(to_hex(bytes->span()), "00ff7a");
  EXPECT_FALSE(from_hex("0").ok());
  EXPECT_FALSE(from_hex("zz").ok());
  EXPECT_FALSE(digest_from_hex("00").ok());
}

TEST(Bytes, LittleEndianWhateverTheMachine) {
  std::byte bytes[4];
  store_le<std::uint32_t>(bytes, 0x01020304);
  EXPECT_EQ(std::to_integer<int>(bytes[0]), 4);
  EXPECT_EQ(load_le<std::uint32_t>(bytes), 0x01020304u);
}

TEST(Rng, IsAFunctionOfItsSeedAndStaysBelowItsBound) {
  Rng a(7), b(7);
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t value = a.below(10);
    EXPECT_EQ(value, b.below(10));
    EXPECT_LT(value, 10u);
    seen.insert(value);
  }
  EXPECT_EQ(seen.size(), 10u);
}

}  // namespace
}  // namespace fluvial

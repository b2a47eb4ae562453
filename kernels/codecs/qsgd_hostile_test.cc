// Bytes that are no qsgd or terngrad chunk are refused, with a reason, by every function that reads them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/codecs/elias.h"
#include "kernels/cpu/qsgd_loops.h"
#include "kernels/reference/reference.h"
#include "kernels/test_values.h"

namespace fluvial::kernels {
namespace {

using test_values::codec_of;
using ::testing::HasSubstr;

class Refusals {
 public:
  Refusals(const char* text, std::size_t value_count)
      : text_(text), codec_(codec_of(text)), value_count_(value_count) {}

  void accepted(const std::string& hex) const {
    const Buffer bytes = from_hex(hex).value();
    const auto screened = codec_->screen_chunk(bytes.span(), value_count_, 0);
    EXPECT_TRUE(screened.ok()) << hex << " " << screened.error().message;
    EXPECT_TRUE(reference::decode(text_, bytes.span(), value_count_).has_value());
  }
  // The reference takes its settings from the bytes, so it may read a chunk of other settings.
  void refused(const std::string& hex, std::string_view reason, bool other_settings = false) const {
    const Buffer bytes = from_hex(hex).value();
    const auto screened = codec_->screen_chunk(bytes.span(), value_count_, 0);
    ASSERT_FALSE(screened.ok()) << hex;
    EXPECT_EQ(screened.error().code, Code::kDataLoss);
    EXPECT_THAT(screened.error().message, HasSubstr(reason));
    std::vector<std::int64_t> sum(value_count_, 7);
    EXPECT_FALSE(codec_->decode_accumulate_chunk(bytes.span(), 1, 10, sum).ok());
    EXPECT_EQ(sum, std::vector<std::int64_t>(value_count_, 7));
    if (reason.find("infinite") == std::string_view::npos) {
      std::vector<float> out(value_count_);
      const std::vector<float> values(value_count_);
      EXPECT_FALSE(codec_->decode_chunk(bytes.span(), out).ok());
      EXPECT_FALSE(codec_->residual_chunk(values, bytes.span(), out).ok());
      EXPECT_FALSE(codec_->decode_add_chunk(bytes.span(), 1.0F, out).ok());
    }
    EXPECT_TRUE(other_settings || !reference::decode(text_, bytes.span(), value_count_).has_value()) << hex;
  }

 private:
  const char* text_;
  std::unique_ptr<Codec> codec_;
  std::size_t value_count_;
};

TEST(QsgdHostile, HeadersAndPackedCodes) {
  const Refusals qsgd("qsgd:levels=5", 5);  // four bits a code; five codes take three bytes
  const std::string step = "0000003f";
  qsgd.accepted("010000010500000005000000" + step + "5b0b01");
  qsgd.refused("020000010500000005000000" + step + "5b0b01", "version");
  qsgd.refused("010200010500000005000000" + step + "5b0b01", "neither 0 (packed) nor 1");
  qsgd.refused("010080000500000005000000" + step + "5b0b01", "blocks of 128 values, expected 256", true);
  qsgd.refused("010000010400000005000000" + step + "5b0b01", "4 values, expected 5");
  qsgd.refused("010000010500000006000000" + step + "5b0b01", "6 levels, expected 5", true);
  qsgd.refused("010000010500000005010000" + step + "5b0b01", "261 levels, expected 5");
  qsgd.refused("010000010500000005000000" + step + "5b0b", "18 bytes, expected 19");
  qsgd.refused("010000010500000005000000" + step + "5b0b0100", "20 bytes, expected 19");
  qsgd.refused("0100000105000000050000", "11 bytes, expected at least 12");
  qsgd.refused("0100000105000000050000000000807f5b0b01", "step of block 0, values 0 to 4");
  qsgd.refused("0100000105000000050000000000c07f5b0b01", "negative or not finite");
  qsgd.refused("010000010500000005000000000000805b0b01", "negative or not finite");
  qsgd.refused("010000010500000005000000" + step + "6b0b01", "value 1 has code 6, expected -5 to 5");
  qsgd.refused("010000010500000005000000" + step + "5b8b01", "value 3 has code -8");
  qsgd.refused("010000010500000005000000" + step + "5b0b11", "ends with bits that are not zero");
  qsgd.refused("010000010500000005000000ffff7f7f5b0b01", "value 0 is infinite");  // -5 * the greatest fp32
}

// 128 codes of 0 are 128 ones, in 16 bytes; packed they take 64.
TEST(QsgdHostile, EliasCodes) {
  const Refusals elias("qsgd:block=128,levels=7,encoding=elias", 128);
  const auto chunk = [](const std::string& length, const std::string& stream) {
    return "01018000800000000700000000000040" + length + stream;
  };
  const std::string ones(30, 'f');
  elias.accepted(chunk("1000", ones + "ff"));
  elias.refused(chunk("1000", ones), "block 0: 16 bytes do not fit");
  elias.refused(chunk("0f00", ones), "value 120: the bytes end before it");
  elias.refused(chunk("1100", ones + "ff"), "block 0: 17 bytes do not fit");
  elias.refused(chunk("ffff", ones + "ff"), "block 0: 65535 bytes do not fit");
  elias.refused(chunk("1000", ones + "ff00"), "1 bytes after the last block");
  elias.refused(chunk("1100", ones + "ff00"), "value 127: more bytes follow");
  elias.refused(chunk("1000", std::string(28, 'f') + "0000"), "value 112: the bytes end before it");
  elias.refused(chunk("1000", "00" + std::string(30, 'f')), "value 0: has more zero bits than any level");
  elias.refused(chunk("2800", std::string(80, '0')), "value 0: has more zero bits than any level");
  elias.refused(chunk("1000", "18" + std::string(30, 'f')), "value 0: is beyond the levels");  // 8
  elias.refused(chunk("1100", ones + "0202"), "value 121: is beyond the levels");
  // 127 codes and a level of 1 (0 1 0, and the sign) end in the third bit of the 17th byte: what follows must be zero.
  elias.accepted(chunk("1100", ones + "7f01"));
  elias.refused(chunk("1100", ones + "7f09"), "value 127: bits after it are not zero");
  elias.refused(chunk("3000", std::string(96, 'f')), "value 127: more bytes follow");
  // Not shorter than the packed form, whatever it holds.
  elias.refused(chunk("4000", std::string(128, 'f')), "82 bytes in elias form, expected 18 to 79");
  elias.refused("01018000800000000700000000000040", "16 bytes in elias form");
}

TEST(QsgdHostile, TernGrad) {
  const Refusals terngrad("terngrad:block=128", 7);  // two bytes: codes 0 2 4 6, and 1 3 5
  terngrad.accepted("01008000070000000000803f280d");
  terngrad.accepted("01008000070000000000803fd8f3");
  terngrad.refused("02008000070000000000803f2828", "version");
  terngrad.refused("01018000070000000000803f2828", "version");
  terngrad.refused("01000001070000000000803f2828", "blocks of 256 values, expected 128", true);
  terngrad.refused("01008000060000000000803f2828", "6 values, expected 7");
  terngrad.refused("01008000070000000000807f2828", "scale of block 0, values 0 to 6, is negative or not finite");
  terngrad.refused("0100800007000000000080bf2828", "negative or not finite");
  terngrad.refused("01008000070000000000803f7a28", "a byte that is no five codes");
  terngrad.refused("01008000070000000000803f8628", "a byte that is no five codes");
  terngrad.refused("01008000070000000000803f8028", "a byte that is no five codes");
  terngrad.refused("01008000070000000000803f0028", "codes after its last value");  // 40 = 27 + 9 + 3 + 1
  terngrad.refused("01008000070000000000803f290d", "codes after its last value");  // 41 = 81 - 27 - 9 - 3 - 1
  terngrad.refused("01008000070000000000803f28", "13 bytes, expected 14");
  terngrad.refused("01008000070000000000803f282800", "15 bytes, expected 14");
}

// Any bytes at all: the reader ends, and accepts only what encodes back to the same bytes.
TEST(QsgdHostile, EliasReaderIsTheWritersInverse) {
  Rng rng(8);
  int accepted = 0;
  for (int round = 0; round < 200'000; ++round) {
    std::vector<std::byte> bytes(rng.below(12));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng.below(256) | (rng.below(2) == 0 ? 0x55 : 0));
    std::vector<std::int8_t> codes(1 + rng.below(16));
    const auto most = static_cast<std::uint32_t>(1 + rng.below(127));
    if (!elias_decode(bytes, most, codes).what.empty()) continue;
    ++accepted;
    std::vector<std::byte> again(elias_bytes_max(codes.size()) + 8);
    again.resize(elias_encode(codes, again.data()));
    ASSERT_EQ(again, bytes);
    for (const std::int8_t code : codes) ASSERT_LE(static_cast<std::uint32_t>(std::abs(code)), most);
  }
  EXPECT_GT(accepted, 500);
}

// The loops accept what elias_decode() accepts, whatever stands behind a block's bytes, and read the same.
TEST(QsgdHostile, EliasLoopsAreTheReader) {
  for (const cpu::Target target : cpu::supported_targets()) {
    Rng rng(9);
    int accepted = 0;
    for (int round = 0; round < 50'000; ++round) {
      std::vector<std::byte> bytes(rng.below(24));
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng.below(256) | (rng.below(2) == 0 ? 0x55 : 0));
      const std::size_t size = rng.below(bytes.size() + 1);
      const auto most = static_cast<std::uint32_t>(1 + rng.below(127));
      std::vector<std::int8_t> expected(1 + rng.below(24)), codes(expected.size());
      const bool is_right = elias_decode(ByteSpan(bytes).first(size), most, expected).what.empty();
      ASSERT_EQ(
          cpu::qsgd_loops(target).elias_decode(bytes.data(), size, bytes.size(), most, codes.size(), codes.data()),
          is_right)
          << to_hex(bytes);
      if (!is_right) continue;
      ++accepted;
      ASSERT_EQ(codes, expected);
    }
    EXPECT_GT(accepted, 200);
  }
}

}  // namespace
}  // namespace fluvial::kernels

#include "kernels/codecs/elias.h"

#include <array>
#include <bit>
#include <cstring>

#include "kernels/ops/elias.h"

namespace fluvial::kernels {
namespace {

static_assert(std::endian::native == std::endian::little, "words are stored as they are");

// By the code as an unsigned byte. -128 is no code; its entry writes nothing.
constexpr std::array<ops::EliasWord, 256> make_codewords() {
  std::array<ops::EliasWord, 256> words{};
  for (std::int32_t code = -127; code <= 127; ++code) words[static_cast<std::uint8_t>(code)] = ops::elias_word(code);
  return words;
}
constexpr std::array<ops::EliasWord, 256> kCodewords = make_codewords();

// The bits of `bytes` from bit `at` on, at least 57 of them, zeros after the end.
std::uint64_t window(ByteSpan bytes, std::size_t at) {
  const std::size_t byte = at / 8;
  std::uint64_t word = 0;
  if (byte + 8 <= bytes.size()) {
    std::memcpy(&word, bytes.data() + byte, 8);
  } else if (byte < bytes.size()) {
    std::memcpy(&word, bytes.data() + byte, bytes.size() - byte);
  }
  return word >> (at % 8);
}

}  // namespace

std::size_t elias_encode(std::span<const std::int8_t> codes, std::byte* out) {
  std::uint64_t word = 0;
  std::uint32_t filled = 0;
  std::size_t at = 0;
  for (const std::int8_t code : codes) {
    const ops::EliasWord next = kCodewords[static_cast<std::uint8_t>(code)];
    word |= static_cast<std::uint64_t>(next.bits) << filled;
    filled += next.length;
    if (filled >= 32) {
      std::memcpy(out + at, &word, 4);
      at += 4;
      word >>= 32;
      filled -= 32;
    }
  }
  std::memcpy(out + at, &word, 8);
  return at + (filled + 7) / 8;
}

EliasFault elias_decode(ByteSpan bytes, std::uint32_t most, std::span<std::int8_t> codes) {
  const std::size_t end = 8 * bytes.size();
  std::size_t at = 0;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const std::uint64_t bits = window(bytes, at);
    const auto zeros = static_cast<std::uint32_t>(std::countr_zero(bits | std::uint64_t{1} << kEliasCodeBitsMax));
    if (zeros > ops::kEliasZerosMost) {
      return {at + zeros >= end ? "the bytes end before it" : "has more zero bits than any level", i};
    }
    const std::uint32_t length = ops::elias_length(zeros);
    if (at + length > end) return {"the bytes end before it", i};
    const std::int32_t code = ops::elias_code(static_cast<std::uint32_t>(bits), zeros);
    if (static_cast<std::uint32_t>(code < 0 ? -code : code) > most) return {"is beyond the levels", i};
    codes[i] = static_cast<std::int8_t>(code);
    at += length;
  }
  if (end - at >= 8) return {"more bytes follow", codes.size() - 1};
  if (end != at && window(bytes, at) != 0) return {"bits after it are not zero", codes.size() - 1};
  return {};
}

}  // namespace fluvial::kernels

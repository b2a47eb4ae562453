// Sixteen SHA-256 at once: a register holds one word of each, so every step of FIPS 180-4 (6.2.2) is one instruction
// for all of them.
#include "core/digest/sha256_x86.h"

#if defined(__x86_64__)

#include <immintrin.h>

namespace fluvial::x86 {
namespace {

#define FLUVIAL_AVX512 __attribute__((target("avx512f,avx512bw")))
#define FLUVIAL_AVX512_INLINE FLUVIAL_AVX512 inline __attribute__((always_inline))

using Word = __m512i;  // of each of the sixteen

constexpr std::size_t kWideLanes = 16;
constexpr int kXor3 = 0x96;      // a ^ b ^ c, as vpternlog writes it
constexpr int kChoose = 0xca;    // a ? b : c
constexpr int kMajority = 0xe8;  // of a, b and c

FLUVIAL_AVX512_INLINE Word add(Word a, Word b) { return _mm512_add_epi32(a, b); }
FLUVIAL_AVX512_INLINE Word every(std::uint32_t word) { return _mm512_set1_epi32(static_cast<int>(word)); }

// Rows are lanes and columns words of a block; afterwards the other way round.
FLUVIAL_AVX512_INLINE void transpose(Word (&rows)[kWideLanes]) {
  Word half[kWideLanes];
  for (std::size_t i = 0; i < kWideLanes; i += 2) {
    half[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    half[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  for (std::size_t i = 0; i < kWideLanes; i += 4) {
    rows[i] = _mm512_unpacklo_epi64(half[i], half[i + 2]);
    rows[i + 1] = _mm512_unpackhi_epi64(half[i], half[i + 2]);
    rows[i + 2] = _mm512_unpacklo_epi64(half[i + 1], half[i + 3]);
    rows[i + 3] = _mm512_unpackhi_epi64(half[i + 1], half[i + 3]);
  }
  for (std::size_t c = 0; c < 4; ++c) {
    half[c] = _mm512_shuffle_i32x4(rows[c], rows[4 + c], 0x88);
    half[4 + c] = _mm512_shuffle_i32x4(rows[c], rows[4 + c], 0xdd);
    half[8 + c] = _mm512_shuffle_i32x4(rows[8 + c], rows[12 + c], 0x88);
    half[12 + c] = _mm512_shuffle_i32x4(rows[8 + c], rows[12 + c], 0xdd);
  }
  for (std::size_t c = 0; c < 4; ++c) {
    rows[c] = _mm512_shuffle_i32x4(half[c], half[8 + c], 0x88);
    rows[8 + c] = _mm512_shuffle_i32x4(half[c], half[8 + c], 0xdd);
    rows[4 + c] = _mm512_shuffle_i32x4(half[4 + c], half[12 + c], 0x88);
    rows[12 + c] = _mm512_shuffle_i32x4(half[4 + c], half[12 + c], 0xdd);
  }
}

FLUVIAL_AVX512_INLINE Word big_sigma_0(Word a) {
  return _mm512_ternarylogic_epi32(_mm512_ror_epi32(a, 2), _mm512_ror_epi32(a, 13), _mm512_ror_epi32(a, 22), kXor3);
}
FLUVIAL_AVX512_INLINE Word big_sigma_1(Word e) {
  return _mm512_ternarylogic_epi32(_mm512_ror_epi32(e, 6), _mm512_ror_epi32(e, 11), _mm512_ror_epi32(e, 25), kXor3);
}
FLUVIAL_AVX512_INLINE Word sigma_0(Word w) {
  return _mm512_ternarylogic_epi32(_mm512_ror_epi32(w, 7), _mm512_ror_epi32(w, 18), _mm512_srli_epi32(w, 3), kXor3);
}
FLUVIAL_AVX512_INLINE Word sigma_1(Word w) {
  return _mm512_ternarylogic_epi32(_mm512_ror_epi32(w, 17), _mm512_ror_epi32(w, 19), _mm512_srli_epi32(w, 10), kXor3);
}

// `w`: the block's words; used up.
FLUVIAL_AVX512_INLINE void compress(Word (&state)[8], Word (&w)[kWideLanes]) {
  Word a = state[0], b = state[1], c = state[2], d = state[3];
  Word e = state[4], f = state[5], g = state[6], h = state[7];
#pragma clang loop unroll(full)
  for (std::size_t t = 0; t < 64; ++t) {
    Word& word = w[t % 16];
    const Word t1 = add(add(add(h, add(word, every(kSha256Rounds[t]))), _mm512_ternarylogic_epi32(e, f, g, kChoose)),
                        big_sigma_1(e));
    const Word t2 = add(big_sigma_0(a), _mm512_ternarylogic_epi32(a, b, c, kMajority));
    if (t < 48) {  // the word of sixteen rounds on
      word = add(add(word, sigma_0(w[(t + 1) % 16])), add(w[(t + 9) % 16], sigma_1(w[(t + 14) % 16])));
    }
    h = g, g = f, f = e, e = add(d, t1);
    d = c, c = b, b = a, a = add(t1, t2);
  }
  const Word after[8] = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < 8; ++i) state[i] = add(state[i], after[i]);
}

}  // namespace

FLUVIAL_AVX512 void sha256_of_sixteen(const std::array<const std::byte*, 16>& pieces, std::size_t bytes,
                                      std::array<Digest, 16>& out) {
  const Word swap = _mm512_broadcast_i32x4(_mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3));
  Word state[8];
  for (std::size_t i = 0; i < 8; ++i) state[i] = every(kSha256Start[i]);
  Word w[kWideLanes];
  for (std::size_t at = 0; at < bytes; at += kSha256BlockBytes) {
    for (std::size_t lane = 0; lane < kWideLanes; ++lane) {
      w[lane] = _mm512_shuffle_epi8(_mm512_loadu_si512(pieces[lane] + at), swap);
    }
    transpose(w);
    compress(state, w);
  }
  for (Word& word : w) word = _mm512_setzero_si512();  // the padding: a bit, and the length in bits
  const std::uint64_t bits = static_cast<std::uint64_t>(bytes) * 8;
  w[0] = every(0x80000000);
  w[14] = every(static_cast<std::uint32_t>(bits >> 32));
  w[15] = every(static_cast<std::uint32_t>(bits));
  compress(state, w);
  for (std::size_t i = 0; i < 8; ++i) {
    alignas(64) std::array<std::uint32_t, kWideLanes> words;
    _mm512_store_si512(words.data(), state[i]);
    for (std::size_t lane = 0; lane < kWideLanes; ++lane) store_word(out[lane], i, words[lane]);
  }
}

}  // namespace fluvial::x86

#endif

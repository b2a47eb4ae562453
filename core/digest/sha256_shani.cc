// Two SHA-256 at once by the SHA extensions: an instruction that does two rounds takes as long as two of them that do
// not wait for each other.
#include "core/digest/sha256_x86.h"

#if defined(__x86_64__)

#include <immintrin.h>

namespace fluvial::x86 {
namespace {

#define FLUVIAL_SHANI __attribute__((target("sha,ssse3,sse4.1")))
#define FLUVIAL_SHANI_INLINE FLUVIAL_SHANI inline __attribute__((always_inline))

constexpr std::size_t kShaniLanes = 2;

FLUVIAL_SHANI_INLINE __m128i four(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }

struct State {  // of one lane, in the order that sha256rnds2 wants
  __m128i abef;
  __m128i cdgh;
};

// `w`: the blocks' words, four a register; used up.
FLUVIAL_SHANI_INLINE void compress(State (&state)[kShaniLanes], __m128i (&w)[kShaniLanes][4]) {
  State now[kShaniLanes] = {state[0], state[1]};
#pragma clang loop unroll(full)
  for (std::size_t t = 0; t < 16; ++t) {  // four rounds each
    const __m128i constants = four(&kSha256Rounds[4 * t]);
#pragma clang loop unroll(full)
    for (std::size_t lane = 0; lane < kShaniLanes; ++lane) {
      __m128i(&words)[4] = w[lane];
      const __m128i sum = _mm_add_epi32(words[t % 4], constants);
      now[lane].cdgh = _mm_sha256rnds2_epu32(now[lane].cdgh, now[lane].abef, sum);
      now[lane].abef = _mm_sha256rnds2_epu32(now[lane].abef, now[lane].cdgh, _mm_shuffle_epi32(sum, 0x0e));
      if (t >= 12) continue;
      const __m128i part = _mm_add_epi32(_mm_sha256msg1_epu32(words[t % 4], words[(t + 1) % 4]),
                                         _mm_alignr_epi8(words[(t + 3) % 4], words[(t + 2) % 4], 4));
      words[t % 4] = _mm_sha256msg2_epu32(part, words[(t + 3) % 4]);
    }
  }
  for (std::size_t lane = 0; lane < kShaniLanes; ++lane) {
    state[lane].abef = _mm_add_epi32(state[lane].abef, now[lane].abef);
    state[lane].cdgh = _mm_add_epi32(state[lane].cdgh, now[lane].cdgh);
  }
}

FLUVIAL_SHANI_INLINE __m128i words(std::uint32_t d, std::uint32_t c, std::uint32_t b, std::uint32_t a) {
  return _mm_set_epi32(static_cast<int>(d), static_cast<int>(c), static_cast<int>(b), static_cast<int>(a));
}

}  // namespace

FLUVIAL_SHANI void sha256_of_two(const std::array<const std::byte*, 2>& pieces, std::size_t bytes,
                                 std::array<Digest, 2>& out) {
  const __m128i swap = _mm_set_epi8(12, 13, 14, 15, 8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3);
  const auto& start = kSha256Start;
  const State begin = {words(start[0], start[1], start[4], start[5]), words(start[2], start[3], start[6], start[7])};
  State state[kShaniLanes] = {begin, begin};
  __m128i w[kShaniLanes][4];
  for (std::size_t at = 0; at < bytes; at += kSha256BlockBytes) {
    for (std::size_t lane = 0; lane < kShaniLanes; ++lane) {
      for (std::size_t i = 0; i < 4; ++i) w[lane][i] = _mm_shuffle_epi8(four(pieces[lane] + at + 16 * i), swap);
    }
    compress(state, w);
  }
  const std::uint64_t bits = static_cast<std::uint64_t>(bytes) * 8;
  for (auto& padding : w) {  // a bit, and the length in bits
    padding[0] = words(0, 0, 0, 0x80000000);
    padding[1] = padding[2] = _mm_setzero_si128();
    padding[3] = words(static_cast<std::uint32_t>(bits), static_cast<std::uint32_t>(bits >> 32), 0, 0);
  }
  compress(state, w);
  constexpr std::size_t kAbef[4] = {5, 4, 1, 0};  // which word of the digest each element is
  constexpr std::size_t kCdgh[4] = {7, 6, 3, 2};
  for (std::size_t lane = 0; lane < kShaniLanes; ++lane) {
    alignas(16) std::array<std::uint32_t, 4> abef;
    alignas(16) std::array<std::uint32_t, 4> cdgh;
    _mm_store_si128(reinterpret_cast<__m128i*>(abef.data()), state[lane].abef);  // NOLINT: as the intrinsic wants it
    _mm_store_si128(reinterpret_cast<__m128i*>(cdgh.data()), state[lane].cdgh);  // NOLINT
    for (std::size_t i = 0; i < 4; ++i) {
      store_word(out[lane], kAbef[i], abef[i]);
      store_word(out[lane], kCdgh[i], cdgh[i]);
    }
  }
}

}  // namespace fluvial::x86

#endif

// The loops of the sparse codecs, for each_target.h. Intrinsics where a plain loop does not vectorise: a group of
// values becomes a mask, and most masks are zero. Prefetched ahead, because a group that holds something stalls the
// stream.

#define FLUVIAL_RESTRICT __restrict__

namespace fluvial::kernels::cpu::FLUVIAL_TARGET {
namespace {

constexpr std::size_t kAheadValues = 1024;

#if defined(FLUVIAL_TARGET_AVX512)

constexpr std::size_t kMaskValues = 64;

// Bit i: the magnitude of x[i] is at least the threshold.
inline std::uint64_t mask_of(const float* x, std::uint32_t threshold) {
  std::uint64_t mask = 0;
  for (int part = 0; part < 4; ++part) {
    _mm_prefetch(reinterpret_cast<const char*>(x + 16 * part + kAheadValues), _MM_HINT_T0);  // NOLINT: as bytes
    const __m512i bits = _mm512_and_si512(_mm512_loadu_si512(x + 16 * part), _mm512_set1_epi32(0x7fffffff));
    const __mmask16 found = _mm512_cmpge_epu32_mask(bits, _mm512_set1_epi32(static_cast<int>(threshold)));
    mask |= static_cast<std::uint64_t>(found) << (16 * part);
  }
  return mask;
}

constexpr std::size_t kStreamValues = 16;
inline void stream(float* out, const float* x) { _mm512_stream_ps(out, _mm512_loadu_ps(x)); }

#elif defined(FLUVIAL_TARGET_AVX2)

constexpr std::size_t kMaskValues = 32;

inline std::uint64_t mask_of(const float* x, std::uint32_t threshold) {
  std::uint64_t mask = 0;
  const __m256i below = _mm256_set1_epi32(static_cast<int>(threshold) - 1);  // as signed: at most 2^31 - 1
  for (int part = 0; part < 4; ++part) {
    if (part % 2 == 0) _mm_prefetch(reinterpret_cast<const char*>(x + 8 * part + kAheadValues), _MM_HINT_T0);  // NOLINT
    const __m256i value = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + 8 * part));  // NOLINT: as integers
    const __m256i found = _mm256_cmpgt_epi32(_mm256_and_si256(value, _mm256_set1_epi32(0x7fffffff)), below);
    const int lanes = _mm256_movemask_ps(_mm256_castsi256_ps(found));
    mask |= static_cast<std::uint64_t>(static_cast<std::uint32_t>(lanes)) << (8 * part);
  }
  return mask;
}

constexpr std::size_t kStreamValues = 8;
inline void stream(float* out, const float* x) { _mm256_stream_ps(out, _mm256_loadu_ps(x)); }

#else

constexpr std::size_t kMaskValues = 16;

inline std::uint64_t mask_of(const float* x, std::uint32_t threshold) {
  std::uint32_t most = 0;
  for (std::size_t lane = 0; lane < kMaskValues; ++lane) {
    const std::uint32_t bits = ops::magnitude_bits(x[lane]);
    most = bits > most ? bits : most;
  }
  if (most < threshold) return 0;
  std::uint64_t mask = 0;
  for (std::size_t lane = 0; lane < kMaskValues; ++lane) {
    mask |= static_cast<std::uint64_t>(ops::magnitude_bits(x[lane]) >= threshold ? 1 : 0) << lane;
  }
  return mask;
}

#if defined(__x86_64__)
constexpr std::size_t kStreamValues = 4;
inline void stream(float* out, const float* x) { _mm_stream_ps(out, _mm_loadu_ps(x)); }
#endif

#endif

std::size_t gather(const float* FLUVIAL_RESTRICT x, std::size_t n, std::uint32_t threshold, std::uint32_t first,
                   std::uint32_t* FLUVIAL_RESTRICT index, float* FLUVIAL_RESTRICT value) {
  std::size_t count = 0;
  std::size_t i = 0;
  for (; i + kMaskValues <= n; i += kMaskValues) {
    for (std::uint64_t mask = mask_of(x + i, threshold); mask != 0; mask &= mask - 1) {
      const std::size_t at = i + static_cast<std::size_t>(__builtin_ctzll(mask));
      index[count] = first + static_cast<std::uint32_t>(at);
      value[count] = x[at];
      ++count;
    }
  }
  for (; i < n; ++i) {
    if (ops::magnitude_bits(x[i]) < threshold) continue;
    index[count] = first + static_cast<std::uint32_t>(i);
    value[count] = x[i];
    ++count;
  }
  return count;
}

void copy(const float* FLUVIAL_RESTRICT x, std::size_t n, float* FLUVIAL_RESTRICT out) {
#if defined(__x86_64__)
  constexpr std::size_t kBytes = kStreamValues * sizeof(float);
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(out) % kBytes;  // NOLINT: an address as a number
  std::size_t head = misaligned == 0 ? 0 : (kBytes - misaligned) / sizeof(float);
  head = head < n ? head : n;
  __builtin_memcpy(out, x, head * sizeof(float));
  std::size_t i = head;
  for (; i + kStreamValues <= n; i += kStreamValues) stream(out + i, x + i);
  _mm_sfence();
  __builtin_memcpy(out + i, x + i, (n - i) * sizeof(float));
#else
  __builtin_memcpy(out, x, n * sizeof(float));
#endif
}

void dgc_fold(const float* update, const float* residual, std::size_t n, float factor, float momentum,
              float* FLUVIAL_RESTRICT moment, float* out) {
  if (residual == nullptr) {
    for (std::size_t i = 0; i < n; ++i) {
      moment[i] = ops::dgc_moment(momentum, moment[i], update[i], factor);
      out[i] = moment[i] + 0.0F;
    }
  } else {
    for (std::size_t i = 0; i < n; ++i) {
      moment[i] = ops::dgc_moment(momentum, moment[i], update[i], factor);
      out[i] = (residual[i] + moment[i]) + 0.0F;
    }
  }
}

constexpr SparseLoops kTable = {.gather = gather, .copy = copy, .dgc_fold = dgc_fold};

}  // namespace

const SparseLoops& sparse_loops_table() { return kTable; }

}  // namespace fluvial::kernels::cpu::FLUVIAL_TARGET

#undef FLUVIAL_RESTRICT

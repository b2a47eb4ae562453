// The sign loops, once, for each_target.h. A word is the bits of 64 values. Each step of a loop has its scalar
// definition, and versions for AVX-512 and AVX2 that treat the 64 values of a whole word, with the same bits.

#define FLUVIAL_RESTRICT __restrict__

namespace fluvial::kernels::cpu::FLUVIAL_TARGET {
namespace {

constexpr std::size_t kWord = 64;
constexpr std::size_t kAhead =
    2048;  // values prefetched: work comes in bursts from the first-level cache, which leave the memory idle

FLUVIAL_HD std::uint64_t load_word(const std::byte* bits) {
  std::uint64_t word;
  __builtin_memcpy(&word, bits, sizeof(word));
  return word;
}

FLUVIAL_HD std::uint32_t load_bit(const std::byte* bits, std::size_t i) {
  return (static_cast<std::uint32_t>(bits[i / 8]) >> (i % 8)) & 1U;
}

FLUVIAL_HD float load_scale(const std::byte* scales, std::size_t index) {
  float scale = 1.0F;
  if (scales != nullptr) __builtin_memcpy(&scale, scales + index * sizeof(float), sizeof(float));
  return scale;
}

// Prefetches a word's values `kAhead` further on. Only an address: it may lie beyond the vector.
FLUVIAL_HD void prefetch_word(const float* x) {
  const std::uintptr_t ahead = reinterpret_cast<std::uintptr_t>(x) + kAhead * sizeof(float);
  for (std::size_t at = 0; at < kWord * sizeof(float); at += 64) {
    __builtin_prefetch(reinterpret_cast<const void*>(ahead + at));
  }
}

#if defined(FLUVIAL_TARGET_AVX512)

struct Lanes {
  __m512d low, high;
};

FLUVIAL_HD Lanes zero_lanes() { return {_mm512_setzero_pd(), _mm512_setzero_pd()}; }

FLUVIAL_HD void store_lanes(const Lanes& lanes, double* out) {
  _mm512_storeu_pd(out, lanes.low);
  _mm512_storeu_pd(out + 8, lanes.high);
}

FLUVIAL_HD std::uint64_t gather_word(const float* x, Lanes& lanes) {
  std::uint64_t word = 0;
  for (int group = 0; group < 4; ++group) {
    const __m512 values = _mm512_loadu_ps(x + 16 * group);
    const __mmask16 negative = _mm512_cmp_ps_mask(values, _mm512_setzero_ps(), _CMP_LT_OQ);
    word |= static_cast<std::uint64_t>(negative) << (16 * group);
    const __m512 magnitudes = _mm512_abs_ps(values);
    lanes.low = _mm512_add_pd(lanes.low, _mm512_cvtps_pd(_mm512_castps512_ps256(magnitudes)));
    lanes.high = _mm512_add_pd(lanes.high, _mm512_cvtps_pd(_mm512_extractf32x8_ps(magnitudes, 1)));
  }
  return word;
}

FLUVIAL_HD __mmask16 mask_of(std::uint64_t word, int group) { return static_cast<__mmask16>(word >> (16 * group)); }

FLUVIAL_HD void decode_word(std::uint64_t word, float scale, float* out) {
  const __m512 positive = _mm512_set1_ps(scale);
  const __m512 negative = _mm512_set1_ps(ops::sign_value(1, scale));
  for (int group = 0; group < 4; ++group) {
    _mm512_storeu_ps(out + 16 * group, _mm512_mask_blend_ps(mask_of(word, group), positive, negative));
  }
}

FLUVIAL_HD void subtract_word(const float* x, std::uint64_t word, float scale, float* out) {
  const __m512 step = _mm512_set1_ps(scale);
  for (int group = 0; group < 4; ++group) {
    const __m512 values = _mm512_loadu_ps(x + 16 * group);
    const __m512 less = _mm512_sub_ps(values, step);
    _mm512_storeu_ps(out + 16 * group, _mm512_mask_add_ps(less, mask_of(word, group), values, step));
  }
}

FLUVIAL_HD void accumulate_word(std::uint64_t word, std::int64_t term, std::int64_t* sum) {
  const __m512i step = _mm512_set1_epi64(term);
  for (int group = 0; group < 8; ++group) {
    const __m512i before = _mm512_loadu_si512(sum + 8 * group);
    const __m512i more = _mm512_add_epi64(before, step);
    const auto negative = static_cast<__mmask8>(word >> (8 * group));
    _mm512_storeu_si512(sum + 8 * group, _mm512_mask_sub_epi64(more, negative, before, step));
  }
}

#elif defined(FLUVIAL_TARGET_AVX2)

struct Lanes {
  __m256d part[4];
};

FLUVIAL_HD Lanes zero_lanes() {
  return {{_mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd(), _mm256_setzero_pd()}};
}

FLUVIAL_HD void store_lanes(const Lanes& lanes, double* out) {
  for (int part = 0; part < 4; ++part) _mm256_storeu_pd(out + 4 * part, lanes.part[part]);
}

FLUVIAL_HD std::uint64_t gather_word(const float* x, Lanes& lanes) {
  const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(ops::kMagnitudeMask)));
  std::uint64_t word = 0;
  for (int group = 0; group < 8; ++group) {
    const __m256 values = _mm256_loadu_ps(x + 8 * group);
    const int negative = _mm256_movemask_ps(_mm256_cmp_ps(values, _mm256_setzero_ps(), _CMP_LT_OQ));
    word |= static_cast<std::uint64_t>(static_cast<std::uint32_t>(negative)) << (8 * group);
    const __m256 magnitudes = _mm256_and_ps(values, magnitude);
    __m256d& low = lanes.part[2 * (group % 2)];
    __m256d& high = lanes.part[2 * (group % 2) + 1];
    low = _mm256_add_pd(low, _mm256_cvtps_pd(_mm256_castps256_ps128(magnitudes)));
    high = _mm256_add_pd(high, _mm256_cvtps_pd(_mm256_extractf128_ps(magnitudes, 1)));
  }
  return word;
}

// The sign bit of each of 8 values, from bit 8 * group on.
FLUVIAL_HD __m256 signs_of(std::uint64_t word, int group) {
  const __m256i spread = _mm256_set1_epi32(static_cast<int>(static_cast<std::uint32_t>(word >> (8 * group))));
  const __m256i shifted = _mm256_sllv_epi32(spread, _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24));
  return _mm256_and_ps(_mm256_castsi256_ps(shifted), _mm256_set1_ps(-0.0F));
}

FLUVIAL_HD void decode_word(std::uint64_t word, float scale, float* out) {
  const __m256 positive = _mm256_set1_ps(scale);
  for (int group = 0; group < 8; ++group) {
    _mm256_storeu_ps(out + 8 * group, _mm256_xor_ps(positive, signs_of(word, group)));
  }
}

FLUVIAL_HD void subtract_word(const float* x, std::uint64_t word, float scale, float* out) {
  const __m256 positive = _mm256_set1_ps(scale);
  for (int group = 0; group < 8; ++group) {
    const __m256 decoded = _mm256_xor_ps(positive, signs_of(word, group));
    _mm256_storeu_ps(out + 8 * group, _mm256_sub_ps(_mm256_loadu_ps(x + 8 * group), decoded));
  }
}

FLUVIAL_HD void accumulate_word(std::uint64_t word, std::int64_t term, std::int64_t* sum) {
  const __m256i step = _mm256_set1_epi64x(term);
  for (int group = 0; group < 16; ++group) {
    const __m256i spread = _mm256_set1_epi64x(static_cast<long long>(word >> (4 * group)));
    const __m256i shifted = _mm256_sllv_epi64(spread, _mm256_setr_epi64x(63, 62, 61, 60));
    const __m256i negative = _mm256_cmpgt_epi64(_mm256_setzero_si256(), shifted);
    const __m256i signed_step = _mm256_sub_epi64(_mm256_xor_si256(step, negative), negative);
    auto* const at = reinterpret_cast<__m256i*>(sum + 4 * group);
    _mm256_storeu_si256(at, _mm256_add_epi64(_mm256_loadu_si256(at), signed_step));
  }
}

#else

struct Lanes {
  double lane[ops::kSignLanes];
};

FLUVIAL_HD Lanes zero_lanes() { return {}; }

FLUVIAL_HD void store_lanes(const Lanes& lanes, double* out) {
  for (std::size_t lane = 0; lane < ops::kSignLanes; ++lane) out[lane] = lanes.lane[lane];
}

FLUVIAL_HD std::uint64_t gather_word(const float* x, Lanes& lanes) {
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < kWord; i += ops::kSignLanes) {
    for (std::size_t lane = 0; lane < ops::kSignLanes; ++lane) {
      lanes.lane[lane] += static_cast<double>(ops::bits_float(ops::magnitude_bits(x[i + lane])));
    }
  }
  for (std::size_t i = 0; i < kWord; ++i) word |= static_cast<std::uint64_t>(ops::sign_bit(x[i])) << i;
  return word;
}

FLUVIAL_HD void decode_word(std::uint64_t word, float scale, float* out) {
  for (std::size_t i = 0; i < kWord; ++i) out[i] = ops::sign_value((word >> i) & 1U, scale);
}

FLUVIAL_HD void subtract_word(const float* x, std::uint64_t word, float scale, float* out) {
  for (std::size_t i = 0; i < kWord; ++i) out[i] = x[i] - ops::sign_value((word >> i) & 1U, scale);
}

FLUVIAL_HD void accumulate_word(std::uint64_t word, std::int64_t term, std::int64_t* sum) {
  for (std::size_t i = 0; i < kWord; ++i) {
    sum[i] = ops::wrapping_add(sum[i], ops::sign_term((word >> i) & 1U, term));
  }
}

#endif

// The bits of a block, and the sum of its magnitudes.
FLUVIAL_HD double gather_block(const float* x, std::size_t n, std::byte* bits) {
  Lanes lanes = zero_lanes();
  std::size_t i = 0;
  for (; i + kWord <= n; i += kWord) {
    prefetch_word(x + i);
    const std::uint64_t word = gather_word(x + i, lanes);
    __builtin_memcpy(bits + i / 8, &word, sizeof(word));
  }
  double sums[ops::kSignLanes];
  store_lanes(lanes, sums);
  for (; i < n; i += 8) {
    std::uint32_t byte = 0;
    for (std::size_t bit = 0; bit < 8 && i + bit < n; ++bit) {
      byte |= ops::sign_bit(x[i + bit]) << bit;
      sums[(i + bit) % ops::kSignLanes] += static_cast<double>(ops::bits_float(ops::magnitude_bits(x[i + bit])));
    }
    bits[i / 8] = static_cast<std::byte>(byte);
  }
  return ops::sign_sum(sums);
}

FLUVIAL_HD void subtract_block(const float* x, const std::byte* bits, std::size_t n, float scale, float* out) {
  std::size_t i = 0;
  for (; i + kWord <= n; i += kWord) subtract_word(x + i, load_word(bits + i / 8), scale, out + i);
  for (; i < n; ++i) out[i] = x[i] - ops::sign_value(load_bit(bits, i), scale);
}

// Calls on_block(first value, values, scale, bits) for each block.
template <typename OnBlock>
FLUVIAL_HD void each_block(const std::byte* scales, const std::byte* bits, std::size_t n, std::size_t block,
                           const OnBlock& on_block) {
  for (std::size_t first = 0, index = 0; first < n; first += block, ++index) {
    const std::size_t length = n - first < block ? n - first : block;
    on_block(first, length, load_scale(scales, index), bits + index * ((block + 7) / 8));
  }
}

std::size_t encode(const float* x, std::size_t n, std::size_t block, std::byte* FLUVIAL_RESTRICT scales,
                   std::byte* FLUVIAL_RESTRICT bits, float* residual) {
  std::size_t index = 0;
  for (std::size_t first = 0; first < n; first += block, ++index) {
    const std::size_t length = n - first < block ? n - first : block;
    std::byte* const block_bits = bits + index * ((block + 7) / 8);
    const double sum = gather_block(x + first, length, block_bits);
    if (!(sum < __builtin_inf())) return index;  // NaN too
    float scale = 1.0F;
    if (scales != nullptr) {
      scale = ops::sign_scale(sum, length);
      __builtin_memcpy(scales + index * sizeof(float), &scale, sizeof(float));
      if (scale == 0.0F) __builtin_memset(block_bits, 0, (length + 7) / 8);  // zeros, of positive sign
    }
    if (residual != nullptr) subtract_block(x + first, block_bits, length, scale, residual + first);
  }
  return index;
}

void decode(const std::byte* scales, const std::byte* bits, std::size_t n, std::size_t block, float* out) {
  each_block(scales, bits, n, block, [&](std::size_t first, std::size_t length, float scale, const std::byte* from) {
    std::size_t i = 0;
    for (; i + kWord <= length; i += kWord) decode_word(load_word(from + i / 8), scale, out + first + i);
    for (; i < length; ++i) out[first + i] = ops::sign_value(load_bit(from, i), scale);
  });
}

void residual(const float* x, const std::byte* scales, const std::byte* bits, std::size_t n, std::size_t block,
              float* out) {
  each_block(scales, bits, n, block, [&](std::size_t first, std::size_t length, float scale, const std::byte* from) {
    subtract_block(x + first, from, length, scale, out + first);
  });
}

// weight * -scale == -(weight * scale), and sum - -term == sum + term, bit for bit.
void add(const std::byte* scales, const std::byte* bits, std::size_t n, std::size_t block, float weight, float* sum) {
  each_block(scales, bits, n, block, [&](std::size_t first, std::size_t length, float scale, const std::byte* from) {
    subtract_block(sum + first, from, length, -(weight * scale), sum + first);
  });
}

// Rounding half to even is symmetric, so a block has one term.
void accumulate(const std::byte* scales, const std::byte* bits, std::size_t n, std::size_t block, double factor,
                std::int64_t* sum) {
  each_block(scales, bits, n, block, [&](std::size_t first, std::size_t length, float scale, const std::byte* from) {
    const std::int64_t term = ops::to_fixed(ops::fixed_product(scale, factor));
    std::size_t i = 0;
    for (; i + kWord <= length; i += kWord) accumulate_word(load_word(from + i / 8), term, sum + first + i);
    for (; i < length; ++i) {
      sum[first + i] = ops::wrapping_add(sum[first + i], ops::sign_term(load_bit(from, i), term));
    }
  });
}

void squares(const std::byte* scales, std::size_t n, std::size_t block, double* FLUVIAL_RESTRICT lanes) {
  std::size_t i = 0;
  for (std::size_t index = 0; i < n; ++index) {
    const std::size_t end = n - i < block ? n : i + block;
    const double scale = static_cast<double>(load_scale(scales, index));
    const double square = scale * scale;
    for (; i < end && i % ops::kSignLanes != 0; ++i) lanes[i % ops::kSignLanes] += square;
    double parts[ops::kSignLanes];
    for (std::size_t lane = 0; lane < ops::kSignLanes; ++lane) parts[lane] = lanes[lane];
    for (; i + ops::kSignLanes <= end; i += ops::kSignLanes) {
      for (std::size_t lane = 0; lane < ops::kSignLanes; ++lane) parts[lane] += square;
    }
    for (std::size_t lane = 0; lane < ops::kSignLanes; ++lane) lanes[lane] = parts[lane];
    for (; i < end; ++i) lanes[i % ops::kSignLanes] += square;
  }
}

constexpr SignLoops kTable = {
    .encode = encode,
    .decode = decode,
    .residual = residual,
    .add = add,
    .accumulate = accumulate,
    .squares = squares,
};

}  // namespace

const SignLoops& sign_loops_table() { return kTable; }

}  // namespace fluvial::kernels::cpu::FLUVIAL_TARGET

#undef FLUVIAL_RESTRICT

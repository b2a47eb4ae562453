// The loops of the dense codecs, once, for each_target.h.

#define FLUVIAL_RESTRICT __restrict__

namespace fluvial::kernels::cpu::FLUVIAL_TARGET {
namespace {

template <typename T>
inline __attribute__((always_inline)) T load(const std::byte* FLUVIAL_RESTRICT bytes, std::size_t i) {
  T value;
  __builtin_memcpy(&value, bytes + i * sizeof(T), sizeof(T));
  return value;
}

// Codes are read in bursts, a piece (kernels/pieces.h) at a time, so the hardware loses track: every loop asks for the
// codes of the next piece, and for sums a little ahead. Asking beyond the end is harmless.
constexpr std::size_t kStrideValues = 64;
constexpr std::size_t kAheadValues = 2048;
constexpr std::size_t kAheadBytes = 2048;
constexpr std::size_t kLineBytes = 64;

// The lines that hold `bytes` bytes from `from` on.
inline __attribute__((always_inline)) void prefetch(const void* from, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += kLineBytes) __builtin_prefetch(static_cast<const char*>(from) + at);
}

// work(i) for all i below n, in strides that a vector fits into many times; ahead(i) once before each.
template <typename Ahead, typename Work>
inline __attribute__((always_inline)) void each_value(std::size_t n, const Ahead& ahead, const Work& work) {
  std::size_t i = 0;
  for (; i + kStrideValues <= n; i += kStrideValues) {
    ahead(i);
    for (std::size_t j = 0; j < kStrideValues; ++j) work(i + j);
  }
  for (; i < n; ++i) work(i);
}

// How the codes of a format read. `at` is a value; `bound` the magnitude bits that no value of n codes exceeds.
struct Fp32 {
  static constexpr std::size_t kBytes = 4;
  static inline __attribute__((always_inline)) float at(const std::byte* codes, std::size_t i, float) {
    return load<float>(codes, i);
  }
  static std::uint32_t bound(const std::byte* FLUVIAL_RESTRICT codes, std::size_t n, float) {
    std::uint32_t most = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint32_t bits = load<std::uint32_t>(codes, i) & ops::kMagnitudeMask;
      most = bits > most ? bits : most;
    }
    return most;
  }
};

std::uint16_t most_of_halves(const std::byte* FLUVIAL_RESTRICT codes, std::size_t n) {
  std::uint16_t most = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const auto half = static_cast<std::uint16_t>(load<std::uint16_t>(codes, i) & 0x7fffU);
    most = half > most ? half : most;
  }
  return most;
}

struct Bf16 {
  static constexpr std::size_t kBytes = 2;
  static inline __attribute__((always_inline)) float at(const std::byte* codes, std::size_t i, float) {
    return ops::float_from_bf16(load<std::uint16_t>(codes, i));
  }
  static std::uint32_t bound(const std::byte* codes, std::size_t n, float) {
    return ops::float_bits(ops::float_from_bf16(most_of_halves(codes, n)));
  }
};

struct Fp16 {
  static constexpr std::size_t kBytes = 2;
  static inline __attribute__((always_inline)) float at(const std::byte* codes, std::size_t i, float) {
#if defined(FLUVIAL_TARGET_AVX2) || defined(FLUVIAL_TARGET_AVX512)
    return static_cast<float>(load<_Float16>(codes, i));  // one instruction, the same bits
#else
    return ops::float_from_fp16(load<std::uint16_t>(codes, i));
#endif
  }
  static std::uint32_t bound(const std::byte* codes, std::size_t n, float) {
    return ops::float_bits(ops::float_from_fp16(most_of_halves(codes, n)));
  }
};

struct Int8 {
  static constexpr std::size_t kBytes = 1;
  static inline __attribute__((always_inline)) float at(const std::byte* codes, std::size_t i, float scale) {
    return ops::int8_value(static_cast<std::int8_t>(codes[i]), scale);
  }
  static std::uint32_t bound(const std::byte*, std::size_t, float scale) {
    return ops::float_bits(ops::kInt8Most * scale);
  }
};

// Codes that ring sends. Their bound is what they hold: a code of all their bits is rare.
struct Int16 {
  static constexpr std::size_t kBytes = 2;
  static inline __attribute__((always_inline)) std::int32_t code(const std::byte* codes, std::size_t i) {
    return load<std::int16_t>(codes, i);
  }
  static inline __attribute__((always_inline)) float at(const std::byte* codes, std::size_t i, float scale) {
    return ops::ring_value(code(codes, i), scale);
  }
  static std::uint32_t bound(const std::byte* codes, std::size_t n, float scale);
};

struct Int24 {
  static constexpr std::size_t kBytes = 3;
  static inline __attribute__((always_inline)) std::int32_t code(const std::byte* codes, std::size_t i) {
    return ops::ring_code_of(load<std::uint8_t>(codes, 3 * i), load<std::uint8_t>(codes, 3 * i + 1),
                             load<std::uint8_t>(codes, 3 * i + 2));
  }
  static inline __attribute__((always_inline)) float at(const std::byte* codes, std::size_t i, float scale) {
    return ops::ring_value(code(codes, i), scale);
  }
  static std::uint32_t bound(const std::byte* codes, std::size_t n, float scale);
};

template <typename Format>
std::uint32_t bound_of_codes(const std::byte* FLUVIAL_RESTRICT codes, std::size_t n, float scale) {
  std::int32_t most = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::int32_t code = Format::code(codes, i);
    const std::int32_t magnitude = code < 0 ? -code : code;
    most = magnitude > most ? magnitude : most;
  }
  return ops::float_bits(ops::ring_value(most, scale));
}
std::uint32_t Int16::bound(const std::byte* codes, std::size_t n, float scale) {
  return bound_of_codes<Int16>(codes, n, scale);
}
std::uint32_t Int24::bound(const std::byte* codes, std::size_t n, float scale) {
  return bound_of_codes<Int24>(codes, n, scale);
}

template <typename Format>
inline __attribute__((always_inline)) void prefetch_codes(const std::byte* codes, std::size_t i) {
  prefetch(codes + (i + kAheadValues) * Format::kBytes, kStrideValues * Format::kBytes);
}

template <typename Format>
void decode(const std::byte* FLUVIAL_RESTRICT codes, std::size_t n, float scale, float* FLUVIAL_RESTRICT out) {
  each_value(
      n, [&](std::size_t i) { prefetch_codes<Format>(codes, i); },
      [&](std::size_t i) { out[i] = Format::at(codes, i, scale); });
}

template <typename Format>
void difference(const std::byte* FLUVIAL_RESTRICT codes, std::size_t n, float scale, const float* x, float* out) {
  FLUVIAL_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i) out[i] = x[i] - Format::at(codes, i, scale);
}

template <typename Format>
void add(const std::byte* FLUVIAL_RESTRICT codes, std::size_t n, float scale, float weight,
         float* FLUVIAL_RESTRICT sum) {
  each_value(
      n,
      [&](std::size_t i) {
        prefetch_codes<Format>(codes, i);
        prefetch(reinterpret_cast<const char*>(sum + i) + kAheadBytes, kStrideValues * sizeof(float));
      },
      [&](std::size_t i) { sum[i] += weight * Format::at(codes, i, scale); });
}

template <typename Format>
void accumulate(const std::byte* FLUVIAL_RESTRICT codes, std::size_t n, float scale, double factor,
                std::int64_t* FLUVIAL_RESTRICT sum) {
  each_value(
      n,
      [&](std::size_t i) {
        prefetch_codes<Format>(codes, i);
        prefetch(reinterpret_cast<const char*>(sum + i) + kAheadBytes, kStrideValues * sizeof(std::int64_t));
      },
      [&](std::size_t i) {
        const double term = ops::fixed_product(Format::at(codes, i, scale), factor);
        sum[i] = ops::wrapping_add(sum[i], ops::to_fixed_small(term));
      });
}

// int4: a run of codes at a time to bytes in the first-level cache, and on as int8.
constexpr std::size_t kNibbleRun = 512;

void unpack_nibbles(const std::byte* FLUVIAL_RESTRICT bytes, std::size_t n, std::byte* FLUVIAL_RESTRICT codes) {
  for (std::size_t i = 0; i < (n + 1) / 2; ++i) {
    const std::uint16_t pair = ops::codes_of(static_cast<std::uint8_t>(bytes[i]));
    __builtin_memcpy(codes + 2 * i, &pair, 2);
  }
}

template <typename Work>
inline __attribute__((always_inline)) void each_nibble_run(const std::byte* bytes, std::size_t n, const Work& work) {
  std::byte codes[kNibbleRun];
  for (std::size_t first = 0; first < n; first += kNibbleRun) {
    const std::size_t length = n - first < kNibbleRun ? n - first : kNibbleRun;
    unpack_nibbles(bytes + first / 2, length, codes);
    work(codes, first, length);
  }
}

void int4_decode(const std::byte* bytes, std::size_t n, float scale, float* out) {
  each_nibble_run(bytes, n, [&](const std::byte* codes, std::size_t first, std::size_t length) {
    decode<Int8>(codes, length, scale, out + first);
  });
}

void int4_difference(const std::byte* bytes, std::size_t n, float scale, const float* x, float* out) {
  each_nibble_run(bytes, n, [&](const std::byte* codes, std::size_t first, std::size_t length) {
    difference<Int8>(codes, length, scale, x + first, out + first);
  });
}

void int4_add(const std::byte* bytes, std::size_t n, float scale, float weight, float* sum) {
  each_nibble_run(bytes, n, [&](const std::byte* codes, std::size_t first, std::size_t length) {
    add<Int8>(codes, length, scale, weight, sum + first);
  });
}

void int4_accumulate(const std::byte* bytes, std::size_t n, float scale, double factor, std::int64_t* sum) {
  each_nibble_run(bytes, n, [&](const std::byte* codes, std::size_t first, std::size_t length) {
    accumulate<Int8>(codes, length, scale, factor, sum + first);
  });
}

std::uint32_t int4_bound(const std::byte*, std::size_t, float scale) { return ops::float_bits(ops::kInt4Most * scale); }

inline __attribute__((always_inline)) void prefetch_values(const float* x, std::size_t i) {
  prefetch(reinterpret_cast<const char*>(x + i) + kAheadBytes, kStrideValues * sizeof(float));
}

std::uint32_t bf16_encode(const float* FLUVIAL_RESTRICT x, std::size_t n, std::byte* FLUVIAL_RESTRICT out) {
  std::uint32_t most = 0;
  each_value(
      n, [&](std::size_t i) { prefetch_values(x, i); },
      [&](std::size_t i) {
        const std::uint32_t bits = ops::magnitude_bits(x[i]);
        most = bits > most ? bits : most;
        const std::uint16_t half = ops::bf16_from_float(x[i]);
        __builtin_memcpy(out + 2 * i, &half, 2);
      });
  return most;
}

std::uint32_t fp16_encode(const float* FLUVIAL_RESTRICT x, std::size_t n, std::byte* FLUVIAL_RESTRICT out) {
  std::uint32_t most = 0;
  each_value(
      n, [&](std::size_t i) { prefetch_values(x, i); },
      [&](std::size_t i) {
        const std::uint32_t bits = ops::magnitude_bits(x[i]);
        most = bits > most ? bits : most;
#if defined(FLUVIAL_TARGET_AVX2) || defined(FLUVIAL_TARGET_AVX512)
        const std::uint32_t sign = ops::float_bits(x[i]) & ~ops::kMagnitudeMask;
        const auto half = static_cast<_Float16>(ops::bits_float(ops::fp16_magnitude(x[i]) | sign));
#else
        const std::uint16_t half = ops::fp16_from_float(x[i]);
#endif
        __builtin_memcpy(out + 2 * i, &half, 2);
      });
  return most;
}

void round_nearest(const float* FLUVIAL_RESTRICT x, std::size_t n, float inverse, std::int8_t* FLUVIAL_RESTRICT out) {
  each_value(
      n, [&](std::size_t i) { prefetch_values(x, i); },
      [&](std::size_t i) { out[i] = static_cast<std::int8_t>(ops::round_nearest(x[i], inverse)); });
}

void round_stochastic(const float* FLUVIAL_RESTRICT x, std::size_t n, float fine_inverse,
                      const std::uint16_t* FLUVIAL_RESTRICT random_bits, std::int8_t* FLUVIAL_RESTRICT out) {
  each_value(
      n, [&](std::size_t i) { prefetch_values(x, i); },
      [&](std::size_t i) {
        out[i] = static_cast<std::int8_t>(ops::round_stochastic(x[i], fine_inverse, random_bits[i]));
      });
}

void pack_nibbles(const std::int8_t* FLUVIAL_RESTRICT codes, std::size_t n, std::byte* FLUVIAL_RESTRICT out) {
  for (std::size_t i = 0; i < n / 2; ++i) {
    std::uint16_t pair;
    __builtin_memcpy(&pair, codes + 2 * i, 2);
    out[i] = static_cast<std::byte>(ops::nibbles_of(pair));
  }
  if (n % 2 != 0) out[n / 2] = static_cast<std::byte>(codes[n - 1] & 0x0f);
}

bool lowest_nibble(const std::byte* FLUVIAL_RESTRICT bytes, std::size_t n) {
  std::uint8_t found = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const auto byte = static_cast<std::uint8_t>(bytes[i]);
    found = static_cast<std::uint8_t>(found | ((byte & 0x0fU) == 0x08U ? 1 : 0) | ((byte & 0xf0U) == 0x80U ? 1 : 0));
  }
  return found != 0;
}

template <typename Format>
constexpr ValueLoops kValueLoops = {
    .decode = decode<Format>,
    .difference = difference<Format>,
    .add = add<Format>,
    .accumulate = accumulate<Format>,
    .bound = Format::bound,
};

constexpr DenseLoops kDenseTable = {
    .fp32 = kValueLoops<Fp32>,
    .bf16 = kValueLoops<Bf16>,
    .fp16 = kValueLoops<Fp16>,
    .int8 = kValueLoops<Int8>,
    .int4 = {.decode = int4_decode,
             .difference = int4_difference,
             .add = int4_add,
             .accumulate = int4_accumulate,
             .bound = int4_bound},
    .int16 = kValueLoops<Int16>,
    .int24 = kValueLoops<Int24>,
    .bf16_encode = bf16_encode,
    .fp16_encode = fp16_encode,
    .round_nearest = round_nearest,
    .round_stochastic = round_stochastic,
    .pack_nibbles = pack_nibbles,
    .lowest_nibble = lowest_nibble,
};

}  // namespace

const DenseLoops& dense_loops_table() { return kDenseTable; }

}  // namespace fluvial::kernels::cpu::FLUVIAL_TARGET

#undef FLUVIAL_RESTRICT

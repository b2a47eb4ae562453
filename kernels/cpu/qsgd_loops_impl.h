// The loops, once, for each_target.h.

#define FLUVIAL_RESTRICT __restrict__

namespace fluvial::kernels::cpu::FLUVIAL_TARGET {
namespace {

void qsgd_encode(const float* FLUVIAL_RESTRICT x, std::size_t n, float fine_inverse, std::int32_t levels,
                 const std::uint16_t* FLUVIAL_RESTRICT random, std::int8_t* FLUVIAL_RESTRICT codes) {
  for (std::size_t i = 0; i < n; ++i) {
    codes[i] = static_cast<std::int8_t>(ops::qsgd_code(x[i], fine_inverse, levels, random[i]));
  }
}

void terngrad_encode(const float* FLUVIAL_RESTRICT x, std::size_t n, float chances,
                     const std::uint16_t* FLUVIAL_RESTRICT random, std::int8_t* FLUVIAL_RESTRICT codes) {
  for (std::size_t i = 0; i < n; ++i) {
    codes[i] = static_cast<std::int8_t>(ops::terngrad_code(x[i], chances, random[i]));
  }
}

std::uint32_t most(const std::int8_t* FLUVIAL_RESTRICT codes, std::size_t n) {
  std::uint8_t greatest = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const auto magnitude = static_cast<std::uint8_t>(codes[i] < 0 ? -codes[i] : codes[i]);
    greatest = magnitude > greatest ? magnitude : greatest;
  }
  return greatest;
}

// The low `width` bits of each of the eight bytes of `word`, side by side; `mask` has those bits set.
#if defined(FLUVIAL_TARGET_AVX2) || defined(FLUVIAL_TARGET_AVX512)
inline std::uint64_t gather_bits(std::uint64_t word, std::uint64_t mask, std::uint32_t) {
  return _pext_u64(word, mask);
}
inline std::uint64_t scatter_bits(std::uint64_t bits, std::uint64_t mask, std::uint32_t) {
  return _pdep_u64(bits, mask);
}
#else
inline std::uint64_t gather_bits(std::uint64_t word, std::uint64_t mask, std::uint32_t width) {
  std::uint64_t bits = 0;
  for (std::uint32_t k = 0; k < 8; ++k) bits |= ((word & mask) >> (8 * k) & 0xff) << (width * k);
  return bits;
}
inline std::uint64_t scatter_bits(std::uint64_t bits, std::uint64_t mask, std::uint32_t width) {
  std::uint64_t word = 0;
  for (std::uint32_t k = 0; k < 8; ++k) word |= (bits >> (width * k) & 0xff) << (8 * k);
  return word & mask;
}
#endif

constexpr std::uint64_t kEveryByte = 0x0101010101010101ULL;

void pack(const std::int8_t* FLUVIAL_RESTRICT codes, std::size_t n, std::uint32_t width,
          std::byte* FLUVIAL_RESTRICT out) {
  const std::uint64_t mask = kEveryByte * ((1U << width) - 1);
  const std::size_t bytes = (n * width + 7) / 8;
  std::size_t i = 0;
  std::size_t at = 0;
  for (; at + 8 <= bytes && i + 8 <= n; i += 8, at += width) {  // stores past the group's bytes are written over
    std::uint64_t word;
    std::memcpy(&word, codes + i, 8);
    word = gather_bits(word, mask, width);
    std::memcpy(out + at, &word, 8);
  }
  for (; i < n; i += 8, at += width) {
    std::uint64_t word = 0;
    std::memcpy(&word, codes + i, n - i < 8 ? n - i : 8);
    word = gather_bits(word, mask, width);
    std::memcpy(out + at, &word, bytes - at < width ? bytes - at : width);
  }
}

void unpack(const std::byte* FLUVIAL_RESTRICT bytes, std::size_t n, std::uint32_t width,
            std::int8_t* FLUVIAL_RESTRICT codes) {
  const std::uint64_t mask = kEveryByte * ((1U << width) - 1);
  const std::size_t size = (n * width + 7) / 8;
  std::size_t i = 0;
  std::size_t at = 0;
  for (; at + 8 <= size && i + 8 <= n; i += 8, at += width) {
    std::uint64_t word;
    std::memcpy(&word, bytes + at, 8);
    word = scatter_bits(word, mask, width);
    std::memcpy(codes + i, &word, 8);
  }
  for (; i < n; i += 8, at += width) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + at, size - at < width ? size - at : width);
    word = scatter_bits(word, mask, width);
    std::memcpy(codes + i, &word, n - i < 8 ? n - i : 8);
  }
  const auto sign = static_cast<std::uint8_t>(1U << (width - 1));
  for (i = 0; i < n; ++i) {
    codes[i] = static_cast<std::int8_t>(static_cast<std::uint8_t>((static_cast<std::uint8_t>(codes[i]) ^ sign) - sign));
  }
}

// The code at the lowest bit of `bits`, which then begin with the next one. Where a code begins follows from where the
// one before ends, so that is done first and in few steps; `bad` gets a bit when there is no such code.
inline std::int8_t next_elias(std::uint64_t& bits, std::uint32_t most, std::uint32_t& bad) {
  const auto here = static_cast<std::uint32_t>(bits);
  const auto zeros = static_cast<std::uint32_t>(__builtin_ctz(here | 1U << ops::kEliasZerosMost));
  bits >>= 2 * zeros + 2 - (here & 1U);  // ops::elias_length()
  const std::int32_t code = ops::elias_code(here, zeros);
  bad |= ((here & 0xffU) == 0 ? 1U : 0U) | (static_cast<std::uint32_t>(code < 0 ? -code : code) > most ? 1U : 0U);
  return static_cast<std::int8_t>(code);
}

// 57 bits at least from bit `at` on, zeros after `readable` bytes.
inline std::uint64_t elias_window(const std::byte* from, std::size_t readable, std::size_t at) {
  const std::size_t byte = at / 8;
  std::uint64_t bits = 0;
  if (byte + 8 <= readable) {
    std::memcpy(&bits, from + byte, 8);
  } else if (byte < readable) {
    std::memcpy(&bits, from + byte, readable - byte);
  }
  return bits >> (at % 8);
}

bool elias_decode(const std::byte* FLUVIAL_RESTRICT from, std::size_t size, std::size_t readable, std::uint32_t most,
                  std::size_t n, std::int8_t* FLUVIAL_RESTRICT codes) {
  constexpr std::size_t kAtOnce = 3;  // of 16 bits at most
  constexpr std::uint64_t kMark = std::uint64_t{1} << 63;
  const std::size_t end = 8 * size;
  std::uint32_t bad = 0;
  std::size_t at = 0;
  std::size_t i = 0;
  for (; i + kAtOnce <= n && at / 8 + 8 <= readable; i += kAtOnce) {
    std::uint64_t bits;
    std::memcpy(&bits, from + at / 8, 8);
    bits = bits >> (at % 8) | kMark;  // how far it moves is how many bits were taken
    for (std::size_t k = 0; k < kAtOnce; ++k) codes[i + k] = next_elias(bits, most, bad);
    at += static_cast<std::size_t>(__builtin_clzll(bits));
  }
  for (; i < n && at < end; ++i) {
    std::uint64_t bits = elias_window(from, readable, at) | kMark;
    codes[i] = next_elias(bits, most, bad);
    at += static_cast<std::size_t>(__builtin_clzll(bits));
  }
  return bad == 0 && i == n && at <= end && end - at < 8 && (end == at || (elias_window(from, size, at)) == 0);
}

void ternary_pack(const std::int8_t* FLUVIAL_RESTRICT codes, std::size_t stride, std::int8_t* FLUVIAL_RESTRICT out) {
  const std::int8_t* FLUVIAL_RESTRICT c1 = codes + stride;
  const std::int8_t* FLUVIAL_RESTRICT c2 = c1 + stride;
  const std::int8_t* FLUVIAL_RESTRICT c3 = c2 + stride;
  const std::int8_t* FLUVIAL_RESTRICT c4 = c3 + stride;
  for (std::size_t i = 0; i < stride; ++i) {
    out[i] = static_cast<std::int8_t>(codes[i] + 3 * (c1[i] + 3 * (c2[i] + 3 * (c3[i] + 3 * c4[i]))));
  }
}

void ternary_unpack(const std::int8_t* FLUVIAL_RESTRICT bytes, std::size_t n, std::int32_t place,
                    std::int8_t* FLUVIAL_RESTRICT codes) {
  const ops::TernaryPlace divisor = ops::ternary_place(place);
  for (std::size_t i = 0; i < n; ++i) codes[i] = ops::ternary_digit(bytes[i], divisor);
}

constexpr QsgdLoops kQsgdTable = {
    .qsgd_encode = qsgd_encode,
    .terngrad_encode = terngrad_encode,
    .most = most,
    .pack = pack,
    .unpack = unpack,
    .elias_decode = elias_decode,
    .ternary_pack = ternary_pack,
    .ternary_unpack = ternary_unpack,
};

}  // namespace

const QsgdLoops& qsgd_loops_table() { return kQsgdTable; }

}  // namespace fluvial::kernels::cpu::FLUVIAL_TARGET

#undef FLUVIAL_RESTRICT

// The loops of codec ring, once, for each_target.h.

#define FLUVIAL_RESTRICT __restrict__

namespace fluvial::kernels::cpu::FLUVIAL_TARGET {
namespace {

template <typename T>
struct RingCode {
  static inline __attribute__((always_inline)) void store(std::int32_t code, std::byte* out, std::size_t i) {
    const auto narrow = static_cast<T>(code);
    __builtin_memcpy(out + i * sizeof(T), &narrow, sizeof(T));
  }
  static inline __attribute__((always_inline)) std::int32_t load(const std::byte* codes, std::size_t i) {
    T code;
    __builtin_memcpy(&code, codes + i * sizeof(T), sizeof(T));
    return code;
  }
};

struct RingCode3 {
  static inline __attribute__((always_inline)) void store(std::int32_t code, std::byte* out, std::size_t i) {
    out[3 * i] = static_cast<std::byte>(code & 0xff);
    out[3 * i + 1] = static_cast<std::byte>(code >> 8 & 0xff);
    out[3 * i + 2] = static_cast<std::byte>(code >> 16 & 0xff);
  }
  static inline __attribute__((always_inline)) std::int32_t load(const std::byte* codes, std::size_t i) {
    return ops::ring_code_of(static_cast<std::uint8_t>(codes[3 * i]), static_cast<std::uint8_t>(codes[3 * i + 1]),
                             static_cast<std::uint8_t>(codes[3 * i + 2]));
  }
};

template <typename Code>
void ring_nearest(const float* FLUVIAL_RESTRICT x, std::size_t n, float inverse, float most,
                  std::byte* FLUVIAL_RESTRICT out) {
  for (std::size_t i = 0; i < n; ++i) Code::store(ops::ring_nearest(ops::ring_steps(x[i], inverse, most)), out, i);
}

template <typename Code>
void ring_stochastic(const float* FLUVIAL_RESTRICT x, std::size_t n, float inverse, float most,
                     const std::uint16_t* FLUVIAL_RESTRICT random, std::byte* FLUVIAL_RESTRICT out) {
  for (std::size_t i = 0; i < n; ++i) {
    Code::store(ops::ring_stochastic(ops::ring_steps(x[i], inverse, most), random[i]), out, i);
  }
}

inline __attribute__((always_inline)) std::uint32_t magnitude_of(std::int32_t code) {
  return static_cast<std::uint32_t>(code < 0 ? -code : code);
}

template <typename Code>
std::uint32_t ring_most(const std::byte* FLUVIAL_RESTRICT codes, std::size_t n) {
  std::uint32_t most = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t magnitude = magnitude_of(Code::load(codes, i));
    most = magnitude > most ? magnitude : most;
  }
  return most;
}

std::uint32_t ring_most_nibble(const std::byte* FLUVIAL_RESTRICT codes, std::size_t n) {
  std::uint32_t most = 0;
  for (std::size_t i = 0; i < (n + 1) / 2; ++i) {
    const std::uint16_t pair = ops::codes_of(static_cast<std::uint8_t>(codes[i]));
    const std::uint32_t low = magnitude_of(static_cast<std::int8_t>(pair & 0xff));
    const std::uint32_t high = magnitude_of(static_cast<std::int8_t>(pair >> 8));
    most = low > most ? low : most;
    most = high > most ? high : most;
  }
  return most;
}

template <typename Code>
constexpr RingWidth kRingWidth = {
    .nearest = ring_nearest<Code>, .stochastic = ring_stochastic<Code>, .most = ring_most<Code>};

constexpr RingLoops kRingTable = {
    .one = kRingWidth<RingCode<std::int8_t>>,
    .two = kRingWidth<RingCode<std::int16_t>>,
    .three = kRingWidth<RingCode3>,
    .most_nibble = ring_most_nibble,
};

}  // namespace

const RingLoops& ring_loops_table() { return kRingTable; }

}  // namespace fluvial::kernels::cpu::FLUVIAL_TARGET

#undef FLUVIAL_RESTRICT

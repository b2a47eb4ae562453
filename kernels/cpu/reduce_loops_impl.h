// The loops of reduce_loops.h, once, for each_target.h. Sums are made a piece at a time in the first-level cache, a few
// inputs a sweep, and a finished piece is written out: past the caches where the caller wants that.

#define FLUVIAL_RESTRICT __restrict__

namespace fluvial::kernels::cpu::FLUVIAL_TARGET {
namespace {

constexpr std::size_t kSumPiece = 1024;
constexpr std::size_t kLineValues = 16;  // of a cache line

// Copies without reading `to` into the caches. The caller fences.
void stream_out(const float* FLUVIAL_RESTRICT from, std::size_t n, float* FLUVIAL_RESTRICT to) {
  std::size_t i = 0;
#if defined(__x86_64__)
  for (; i < n && reinterpret_cast<std::uintptr_t>(to + i) % (4 * kLineValues) != 0; ++i) to[i] = from[i];
  for (; i + kLineValues <= n; i += kLineValues) {
#if defined(FLUVIAL_TARGET_AVX512)
    _mm512_stream_ps(to + i, _mm512_loadu_ps(from + i));
#elif defined(FLUVIAL_TARGET_AVX2)
    _mm256_stream_ps(to + i, _mm256_loadu_ps(from + i));
    _mm256_stream_ps(to + i + 8, _mm256_loadu_ps(from + i + 8));
#else
    for (std::size_t j = 0; j < kLineValues; j += 4) _mm_stream_ps(to + i + j, _mm_loadu_ps(from + i + j));
#endif
  }
#endif
  for (; i < n; ++i) to[i] = from[i];
}

void write_out(const float* from, std::size_t n, bool stream, float* to) {
  if (stream) {
    stream_out(from, n, to);
  } else {
    __builtin_memcpy(to, from, n * sizeof(float));
  }
}

// Streamed lines are visible to other threads only behind a fence.
void end_stream(bool stream) {
#if defined(__x86_64__)
  if (stream) _mm_sfence();
#else
  (void)stream;
#endif
}

inline __attribute__((always_inline)) float value_at(const float* x, std::size_t i) { return x[i]; }
inline __attribute__((always_inline)) float value_at(const std::byte* x, std::size_t i) {
  std::uint16_t half;
  __builtin_memcpy(&half, x + 2 * i, 2);
  return ops::float_from_bf16(half);
}
inline __attribute__((always_inline)) const float* advance(const float* x, std::size_t values) { return x + values; }
inline __attribute__((always_inline)) const std::byte* advance(const std::byte* x, std::size_t values) {
  return x + 2 * values;
}

template <typename In, typename Sum>
void begin_with(const In* const* in, std::size_t count, std::size_t at, std::size_t n, Sum* FLUVIAL_RESTRICT sum) {
  const In* a = advance(in[0], at);
  if (count == 1) {
    for (std::size_t i = 0; i < n; ++i) sum[i] = static_cast<Sum>(value_at(a, i));
    return;
  }
  const In* b = advance(in[1], at);
  if (count == 2) {
    for (std::size_t i = 0; i < n; ++i) sum[i] = static_cast<Sum>(value_at(a, i)) + static_cast<Sum>(value_at(b, i));
    return;
  }
  const In* c = advance(in[2], at);
  if (count == 3) {
    for (std::size_t i = 0; i < n; ++i) {
      sum[i] = (static_cast<Sum>(value_at(a, i)) + static_cast<Sum>(value_at(b, i))) + static_cast<Sum>(value_at(c, i));
    }
    return;
  }
  const In* d = advance(in[3], at);
  for (std::size_t i = 0; i < n; ++i) {
    sum[i] =
        ((static_cast<Sum>(value_at(a, i)) + static_cast<Sum>(value_at(b, i))) + static_cast<Sum>(value_at(c, i))) +
        static_cast<Sum>(value_at(d, i));
  }
}

template <typename In, typename Sum>
void go_on_with(const In* const* in, std::size_t count, std::size_t at, std::size_t n, Sum* FLUVIAL_RESTRICT sum) {
  std::size_t k = 0;
  for (; k + 2 <= count; k += 2) {
    const In* a = advance(in[k], at);
    const In* b = advance(in[k + 1], at);
    for (std::size_t i = 0; i < n; ++i) {
      sum[i] = (sum[i] + static_cast<Sum>(value_at(a, i))) + static_cast<Sum>(value_at(b, i));
    }
  }
  if (k == count) return;
  const In* a = advance(in[k], at);
  for (std::size_t i = 0; i < n; ++i) sum[i] += static_cast<Sum>(value_at(a, i));
}

template <typename In, typename Sum>
void sum_piece(const In* const* in, std::size_t count, std::size_t at, std::size_t n, Sum* FLUVIAL_RESTRICT sum) {
  const std::size_t first = count < 4 ? count : 4;
  begin_with(in, first, at, n, sum);
  go_on_with(in + first, count - first, at, n, sum);
}

template <typename In>
void sum_any(const In* const* in, std::size_t count, std::size_t n, bool stream, float* out) {
  float sum[kSumPiece];
  for (std::size_t at = 0; at < n; at += kSumPiece) {
    const std::size_t size = n - at < kSumPiece ? n - at : kSumPiece;
    sum_piece(in, count, at, size, sum);
    write_out(sum, size, stream, out + at);
  }
  end_stream(stream);
}

template <typename In>
void wide_sum_any(const In* const* in, std::size_t count, std::size_t n, double by, bool stream, float* out) {
  double sum[kSumPiece];
  float rounded[kSumPiece];
  for (std::size_t at = 0; at < n; at += kSumPiece) {
    const std::size_t size = n - at < kSumPiece ? n - at : kSumPiece;
    sum_piece(in, count, at, size, sum);
    for (std::size_t i = 0; i < size; ++i) rounded[i] = static_cast<float>(sum[i] / by);
    write_out(rounded, size, stream, out + at);
  }
  end_stream(stream);
}

void sum_fp32(const float* const* in, std::size_t count, std::size_t n, bool stream, float* out) {
  sum_any(in, count, n, stream, out);
}
void sum_bf16(const std::byte* const* in, std::size_t count, std::size_t n, bool stream, float* out) {
  sum_any(in, count, n, stream, out);
}
void wide_sum_fp32(const float* const* in, std::size_t count, std::size_t n, double by, bool stream, float* out) {
  wide_sum_any(in, count, n, by, stream, out);
}
void wide_sum_bf16(const std::byte* const* in, std::size_t count, std::size_t n, double by, bool stream, float* out) {
  wide_sum_any(in, count, n, by, stream, out);
}

std::uint32_t scale(float* FLUVIAL_RESTRICT x, std::size_t n, double factor, double* FLUVIAL_RESTRICT lanes) {
  std::uint32_t most[kSquareLanes] = {};
  double squares[kSquareLanes];
  for (std::size_t lane = 0; lane < kSquareLanes; ++lane) squares[lane] = lanes[lane];
  const auto one = [&](std::size_t i, std::size_t lane) __attribute__((always_inline)) {
    const float value = static_cast<float>(static_cast<double>(x[i]) * factor);
    x[i] = value;
    const std::uint32_t bits = ops::magnitude_bits(value);
    most[lane] = bits > most[lane] ? bits : most[lane];
    squares[lane] += static_cast<double>(value) * static_cast<double>(value);
  };
  std::size_t i = 0;
  for (; i + kSquareLanes <= n; i += kSquareLanes) {
    for (std::size_t lane = 0; lane < kSquareLanes; ++lane) one(i + lane, lane);
  }
  for (std::size_t lane = 0; i < n; ++i, ++lane) one(i, lane);
  std::uint32_t all = 0;
  for (std::size_t lane = 0; lane < kSquareLanes; ++lane) {
    lanes[lane] = squares[lane];
    all = most[lane] > all ? most[lane] : all;
  }
  return all;
}

constexpr ReduceLoops kReduceTable = {
    .sum = sum_fp32,
    .sum_bf16 = sum_bf16,
    .wide_sum = wide_sum_fp32,
    .wide_sum_bf16 = wide_sum_bf16,
    .scale = scale,
};

}  // namespace

const ReduceLoops& reduce_loops_table() { return kReduceTable; }

}  // namespace fluvial::kernels::cpu::FLUVIAL_TARGET

#undef FLUVIAL_RESTRICT

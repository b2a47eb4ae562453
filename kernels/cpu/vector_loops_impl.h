// The loops, once, for each_target.h. Each vectorises in the same way everywhere: no reassociation, and lanes are
// written out where the order matters.

#define FLUVIAL_RESTRICT __restrict__

namespace fluvial::kernels::cpu::FLUVIAL_TARGET {
namespace {

std::uint32_t max_bits(const float* FLUVIAL_RESTRICT x, std::size_t n) {
  std::uint32_t most = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t bits = ops::magnitude_bits(x[i]);
    most = bits > most ? bits : most;
  }
  return most;
}

std::uint32_t screen(const float* FLUVIAL_RESTRICT x, std::size_t n, double* FLUVIAL_RESTRICT lanes) {
  std::uint32_t most[kSquareLanes] = {};
  double squares[kSquareLanes];
  for (std::size_t lane = 0; lane < kSquareLanes; ++lane) squares[lane] = lanes[lane];
  std::size_t i = 0;
  for (; i + kSquareLanes <= n; i += kSquareLanes) {
    __builtin_prefetch(reinterpret_cast<const char*>(x + i) + 1024);
    for (std::size_t lane = 0; lane < kSquareLanes; ++lane) {
      const float value = x[i + lane];
      const std::uint32_t bits = ops::magnitude_bits(value);
      most[lane] = bits > most[lane] ? bits : most[lane];
      const double wide = static_cast<double>(value);
      squares[lane] += wide * wide;
    }
  }
  for (std::size_t lane = 0; i < n; ++i, ++lane) {
    const std::uint32_t bits = ops::magnitude_bits(x[i]);
    most[lane] = bits > most[lane] ? bits : most[lane];
    const double wide = static_cast<double>(x[i]);
    squares[lane] += wide * wide;
  }
  std::uint32_t all = 0;
  for (std::size_t lane = 0; lane < kSquareLanes; ++lane) {
    lanes[lane] = squares[lane];
    all = most[lane] > all ? most[lane] : all;
  }
  return all;
}

std::size_t select(const float* FLUVIAL_RESTRICT x, std::size_t n, std::uint32_t threshold,
                   std::uint32_t* FLUVIAL_RESTRICT indices) {
  constexpr std::size_t kGroup = 16;  // most groups hold nothing: look at sixteen at once
  std::size_t count = 0;
  std::size_t i = 0;
  for (; i + kGroup <= n; i += kGroup) {
    std::uint32_t most = 0;
    for (std::size_t lane = 0; lane < kGroup; ++lane) {
      const std::uint32_t bits = ops::magnitude_bits(x[i + lane]);
      most = bits > most ? bits : most;
    }
    if (most < threshold) continue;
    for (std::size_t lane = 0; lane < kGroup; ++lane) {
      indices[count] = static_cast<std::uint32_t>(i + lane);
      count += ops::magnitude_bits(x[i + lane]) >= threshold ? 1 : 0;
    }
  }
  for (; i < n; ++i) {
    if (ops::magnitude_bits(x[i]) >= threshold) indices[count++] = static_cast<std::uint32_t>(i);
  }
  return count;
}

void accumulate_small(const float* FLUVIAL_RESTRICT x, std::size_t n, double factor,
                      std::int64_t* FLUVIAL_RESTRICT sum) {
  for (std::size_t i = 0; i < n; ++i) {
    sum[i] = ops::wrapping_add(sum[i], ops::to_fixed_small(ops::fixed_product(x[i], factor)));
  }
}

void accumulate_large(const float* FLUVIAL_RESTRICT x, std::size_t n, double factor,
                      std::int64_t* FLUVIAL_RESTRICT sum) {
  for (std::size_t i = 0; i < n; ++i) {
    sum[i] = ops::wrapping_add(sum[i], ops::to_fixed(ops::fixed_product(x[i], factor)));
  }
}

void mean(const std::int64_t* FLUVIAL_RESTRICT sum, std::size_t n, double inverse_scale, double total_weight,
          float* FLUVIAL_RESTRICT out) {
  for (std::size_t i = 0; i < n; ++i) out[i] = ops::mean_of_sum(sum[i], inverse_scale, total_weight);
}

bool add(const std::int64_t* FLUVIAL_RESTRICT values, std::size_t n, std::int64_t* FLUVIAL_RESTRICT sum) {
  std::int64_t signs = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::int64_t result = ops::wrapping_add(sum[i], values[i]);
    signs |= ops::overflow_sign(sum[i], values[i], result);
    sum[i] = result;
  }
  return signs < 0;
}

void subtract(const std::int64_t* FLUVIAL_RESTRICT values, std::size_t n, std::int64_t* FLUVIAL_RESTRICT sum) {
  for (std::size_t i = 0; i < n; ++i) sum[i] = ops::wrapping_subtract(sum[i], values[i]);
}

std::uint64_t spread(const std::int64_t* FLUVIAL_RESTRICT sum, std::size_t n, std::size_t* nonzero) {
  std::uint64_t bits = 0;
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < n; ++i) {
    bits |= static_cast<std::uint64_t>(sum[i] ^ (sum[i] >> 63));
    count += sum[i] != 0 ? 1 : 0;
  }
  *nonzero = static_cast<std::size_t>(count);
  return bits;
}

template <typename Narrow>
void narrow_to(const std::int64_t* FLUVIAL_RESTRICT sum, std::size_t n, std::byte* FLUVIAL_RESTRICT out) {
  for (std::size_t i = 0; i < n; ++i) {
    const Narrow value = static_cast<Narrow>(sum[i]);
    __builtin_memcpy(out + i * sizeof(Narrow), &value, sizeof(Narrow));
  }
}

// Widths without a type of their own: eight bytes are stored, of which the next store overwrites the surplus.
void narrow_bytes(const std::int64_t* FLUVIAL_RESTRICT sum, std::size_t n, std::size_t width,
                  std::byte* FLUVIAL_RESTRICT out) {
  std::size_t i = 0;
  for (; i * width + 8 <= n * width; ++i) __builtin_memcpy(out + i * width, &sum[i], 8);
  for (; i < n; ++i) __builtin_memcpy(out + i * width, &sum[i], width);
}

void narrow(const std::int64_t* sum, std::size_t n, std::size_t width, std::byte* out) {
  switch (width) {
    case 1: return narrow_to<std::int8_t>(sum, n, out);
    case 2: return narrow_to<std::int16_t>(sum, n, out);
    case 4: return narrow_to<std::int32_t>(sum, n, out);
    case 8: return narrow_to<std::int64_t>(sum, n, out);
    default: return narrow_bytes(sum, n, width, out);
  }
}

template <typename Narrow>
void widen_from(const std::byte* FLUVIAL_RESTRICT bytes, std::size_t n, std::int64_t* FLUVIAL_RESTRICT out) {
  for (std::size_t i = 0; i < n; ++i) {
    Narrow value;
    __builtin_memcpy(&value, bytes + i * sizeof(Narrow), sizeof(Narrow));
    out[i] = value;
  }
}

void widen_bytes(const std::byte* FLUVIAL_RESTRICT bytes, std::size_t n, std::size_t width,
                 std::int64_t* FLUVIAL_RESTRICT out) {
  const int surplus = static_cast<int>(64 - 8 * width);
  std::size_t i = 0;
  for (; i * width + 8 <= n * width; ++i) {
    std::uint64_t value;
    __builtin_memcpy(&value, bytes + i * width, 8);
    out[i] = static_cast<std::int64_t>(value << surplus) >> surplus;
  }
  for (; i < n; ++i) {
    std::uint64_t value = 0;
    __builtin_memcpy(&value, bytes + i * width, width);
    out[i] = static_cast<std::int64_t>(value << surplus) >> surplus;
  }
}

void widen(const std::byte* bytes, std::size_t n, std::size_t width, std::int64_t* out) {
  switch (width) {
    case 1: return widen_from<std::int8_t>(bytes, n, out);
    case 2: return widen_from<std::int16_t>(bytes, n, out);
    case 4: return widen_from<std::int32_t>(bytes, n, out);
    case 8: return widen_from<std::int64_t>(bytes, n, out);
    default: return widen_bytes(bytes, n, width, out);
  }
}

void random(const ops::RandomStream& stream, std::uint64_t first_group, std::size_t groups,
            std::uint16_t* FLUVIAL_RESTRICT out) {
  const std::uint64_t high = stream.counter_high;
  const std::uint64_t key = stream.key;
  for (std::size_t group = 0; group < groups; ++group) {
    const std::uint64_t counter = ops::kRandomLanes * (first_group + group);
    std::uint16_t* FLUVIAL_RESTRICT to = out + ops::kRandomGroup * group;
    for (std::size_t lane = 0; lane < ops::kRandomLanes; ++lane) {
      const ops::RandomPairs pairs = ops::philox_pairs(counter + lane, high, key);
      __builtin_memcpy(to + 4 * lane, &pairs.pair[0], 8);
      __builtin_memcpy(to + 32 + 4 * lane, &pairs.pair[1], 8);
    }
  }
}

void difference(const float* a, const float* b, std::size_t n, float* out) {
  FLUVIAL_INDEPENDENT
  for (std::size_t i = 0; i < n; ++i) out[i] = a[i] - b[i];
}

void pseudo_gradient(const float* base, const float* local, const float* residual, std::size_t n, float* out) {
  if (residual == nullptr) {
    FLUVIAL_INDEPENDENT
    for (std::size_t i = 0; i < n; ++i) out[i] = ops::pseudo_gradient(base[i], local[i], 0.0F);
  } else {
    FLUVIAL_INDEPENDENT
    for (std::size_t i = 0; i < n; ++i) out[i] = ops::pseudo_gradient(base[i], local[i], residual[i]);
  }
}

void fold(const float* update, const float* residual, std::size_t n, float* out) {
  if (residual == nullptr) {
    FLUVIAL_INDEPENDENT
    for (std::size_t i = 0; i < n; ++i) out[i] = update[i] + 0.0F;
  } else {
    FLUVIAL_INDEPENDENT
    for (std::size_t i = 0; i < n; ++i) out[i] = ops::folded(update[i], residual[i]);
  }
}

void add_scaled(const float* FLUVIAL_RESTRICT x, std::size_t n, float weight, float* FLUVIAL_RESTRICT sum) {
  for (std::size_t i = 0; i < n; ++i) sum[i] += weight * x[i];
}

void weighted_add(const float* FLUVIAL_RESTRICT x, std::size_t n, double weight, double* FLUVIAL_RESTRICT sum) {
  for (std::size_t i = 0; i < n; ++i) sum[i] += static_cast<double>(x[i]) * weight;
}

void divide(const double* FLUVIAL_RESTRICT sum, std::size_t n, double by, float* FLUVIAL_RESTRICT out) {
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<float>(sum[i] / by);
}

void sgd(double lr, const float* FLUVIAL_RESTRICT mean_values, std::size_t n, float* FLUVIAL_RESTRICT model) {
  for (std::size_t i = 0; i < n; ++i) model[i] = ops::sgd_step(lr, mean_values[i], model[i]);
}

void momentum(double lr, double momentum_factor, const float* FLUVIAL_RESTRICT mean_values, std::size_t n,
              float* FLUVIAL_RESTRICT moment, float* FLUVIAL_RESTRICT model) {
  for (std::size_t i = 0; i < n; ++i) {
    moment[i] = ops::momentum_step(momentum_factor, moment[i], mean_values[i]);
    model[i] = ops::sgd_step(lr, moment[i], model[i]);
  }
}

constexpr Loops kTable = {
    .max_bits = max_bits,
    .screen = screen,
    .select = select,
    .accumulate_small = accumulate_small,
    .accumulate_large = accumulate_large,
    .mean = mean,
    .add = add,
    .subtract = subtract,
    .spread = spread,
    .narrow = narrow,
    .widen = widen,
    .random = random,
    .difference = difference,
    .pseudo_gradient = pseudo_gradient,
    .fold = fold,
    .add_scaled = add_scaled,
    .weighted_add = weighted_add,
    .divide = divide,
    .sgd = sgd,
    .momentum = momentum,
};

}  // namespace

const Loops& vector_loops_table() { return kTable; }

}  // namespace fluvial::kernels::cpu::FLUVIAL_TARGET

#undef FLUVIAL_RESTRICT

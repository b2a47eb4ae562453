// The loops of robust_loops.h, once, for each_target.h.

#define FLUVIAL_RESTRICT __restrict__

namespace fluvial::kernels::cpu::FLUVIAL_TARGET {
namespace {

std::uint32_t keys(const float* FLUVIAL_RESTRICT x, std::size_t n, std::int32_t* FLUVIAL_RESTRICT key) {
  std::uint32_t bad = 0;
  for (std::size_t i = 0; i < n; ++i) {
    key[i] = ops::sort_key(x[i]);
    bad |= ops::magnitude_bits(x[i]) >= ops::kInfinityBits ? 1U : 0U;
  }
  return bad;
}

void exchange(std::int32_t* FLUVIAL_RESTRICT low, std::int32_t* FLUVIAL_RESTRICT high, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    const std::int32_t a = low[i];
    const std::int32_t b = high[i];
    low[i] = a < b ? a : b;
    high[i] = a < b ? b : a;
  }
}

void values(const std::int32_t* FLUVIAL_RESTRICT key, std::size_t n, double* FLUVIAL_RESTRICT out) {
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<double>(ops::key_value(key[i]));
}

void middle(const std::int32_t* FLUVIAL_RESTRICT a, const std::int32_t* FLUVIAL_RESTRICT b, std::size_t n,
            float* FLUVIAL_RESTRICT out) {
  for (std::size_t i = 0; i < n; ++i) {
    out[i] = static_cast<float>(
        (static_cast<double>(ops::key_value(a[i])) + static_cast<double>(ops::key_value(b[i]))) * 0.5);
  }
}

void add_keys(const std::int32_t* FLUVIAL_RESTRICT key, std::size_t n, double* FLUVIAL_RESTRICT sum) {
  for (std::size_t i = 0; i < n; ++i) sum[i] += static_cast<double>(ops::key_value(key[i]));
}

void entries(const std::int32_t* FLUVIAL_RESTRICT key, std::size_t n, std::uint32_t weight,
             std::int64_t* FLUVIAL_RESTRICT entry) {
  for (std::size_t i = 0; i < n; ++i) entry[i] = ops::weighted_entry(key[i], weight);
}

void exchange_entries(std::int64_t* FLUVIAL_RESTRICT low, std::int64_t* FLUVIAL_RESTRICT high, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    const std::int64_t a = low[i];
    const std::int64_t b = high[i];
    low[i] = a < b ? a : b;
    high[i] = a < b ? b : a;
  }
}

void reach_half(const std::int64_t* FLUVIAL_RESTRICT entry, std::size_t n, std::int64_t total,
                std::int64_t* FLUVIAL_RESTRICT reached, double* FLUVIAL_RESTRICT low, double* FLUVIAL_RESTRICT high) {
  for (std::size_t i = 0; i < n; ++i) {
    const std::int64_t before = reached[i];
    const double value = ops::entry_value(entry[i]);
    low[i] = 2 * before < total ? value : low[i];
    high[i] = 2 * before <= total ? value : high[i];
    reached[i] = before + ops::entry_weight(entry[i]);
  }
}

void add_between(const std::int64_t* FLUVIAL_RESTRICT entry, std::size_t n, std::int64_t from, std::int64_t to,
                 std::int64_t* FLUVIAL_RESTRICT reached, double* FLUVIAL_RESTRICT sum) {
  for (std::size_t i = 0; i < n; ++i) {
    const std::int64_t before = reached[i];
    const std::int64_t after = before + ops::entry_weight(entry[i]);
    const std::int64_t kept = ops::weight_between(before, after, from, to);
    sum[i] += static_cast<double>(kept) * ops::entry_value(entry[i]);
    reached[i] = after;
  }
}

template <typename Center>
void distance_any(const Center* FLUVIAL_RESTRICT a, const float* FLUVIAL_RESTRICT b, std::size_t n,
                  double* FLUVIAL_RESTRICT lanes) {
  double squares[kSquareLanes];
  for (std::size_t lane = 0; lane < kSquareLanes; ++lane) squares[lane] = lanes[lane];
  std::size_t i = 0;
  for (; i + kSquareLanes <= n; i += kSquareLanes) {
    for (std::size_t lane = 0; lane < kSquareLanes; ++lane) {
      const double difference = static_cast<double>(a[i + lane]) - static_cast<double>(b[i + lane]);
      squares[lane] += difference * difference;
    }
  }
  for (std::size_t lane = 0; i < n; ++i, ++lane) {
    const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    squares[lane] += difference * difference;
  }
  for (std::size_t lane = 0; lane < kSquareLanes; ++lane) lanes[lane] = squares[lane];
}

void distance(const float* a, const float* b, std::size_t n, double* lanes) { distance_any(a, b, n, lanes); }
void distance_to(const double* a, const float* b, std::size_t n, double* lanes) { distance_any(a, b, n, lanes); }

constexpr RobustLoops kRobustTable = {
    .keys = keys,
    .exchange = exchange,
    .values = values,
    .middle = middle,
    .add_keys = add_keys,
    .entries = entries,
    .exchange_entries = exchange_entries,
    .reach_half = reach_half,
    .add_between = add_between,
    .distance = distance,
    .distance_to = distance_to,
};

}  // namespace

const RobustLoops& robust_loops_table() { return kRobustTable; }

}  // namespace fluvial::kernels::cpu::FLUVIAL_TARGET

#undef FLUVIAL_RESTRICT

// Every loop gives the same bits on every instruction set that this machine runs.
#include <gtest/gtest.h>

#include <array>
#include <tuple>

#include "kernels/cpu/dense_loops.h"
#include "kernels/cpu/ring_loops.h"
#include "kernels/pieces.h"
#include "kernels/test_values.h"

namespace fluvial::kernels {
namespace {

constexpr std::size_t kSizes[] = {0, 1, 3, 15, 16, 17, 63, 64, 65, 1'000, 4'099};

// The results of every loop of a target for one vector, as bytes.
class Trace {
 public:
  template <typename T>
  void add(const std::vector<T>& values) {
    for (const T& value : values) add_value(value);
  }
  template <typename T>
  void add_value(const T& value) {
    const auto* bytes = reinterpret_cast<const char*>(&value);
    text_.append(bytes, sizeof(T));
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

void trace_fixed(const cpu::Loops& loops, std::span<const float> x, Trace& trace) {
  const std::size_t n = x.size();
  std::vector<std::int64_t> sum(n, 41);
  loops.accumulate_small(x.data(), n, 0x1p20, sum.data());
  trace.add(sum);
  loops.accumulate_large(x.data(), n, 0x1.fffffp51, sum.data());
  trace.add(sum);
  std::vector<float> mean(n);
  loops.mean(sum.data(), n, 0x1p-40, 12'345, mean.data());
  trace.add(mean);
  std::size_t nonzero = 0;
  trace.add_value(loops.spread(sum.data(), n, &nonzero));
  trace.add_value(nonzero);
  for (std::size_t width = 1; width <= 8; ++width) {
    std::vector<std::byte> packed(n * width);
    loops.narrow(sum.data(), n, width, packed.data());
    trace.add(packed);
    std::vector<std::int64_t> wide(n);
    loops.widen(packed.data(), n, width, wide.data());
    trace.add(wide);
  }
  std::vector<std::int64_t> other = sum;
  trace.add_value(loops.add(sum.data(), n, other.data()));
  trace.add(other);
  std::vector<std::int64_t> greatest(n, std::numeric_limits<std::int64_t>::max());
  trace.add_value(loops.add(sum.data(), n, greatest.data()));
  loops.subtract(sum.data(), n, greatest.data());
  trace.add(greatest);
}

void trace_scans(const cpu::Loops& loops, std::span<const float> x, Trace& trace) {
  const std::size_t n = x.size();
  const std::uint32_t most = loops.max_bits(x.data(), n);
  trace.add_value(most);
  std::array<double, cpu::kSquareLanes> lanes{};
  trace.add_value(loops.screen(x.data(), n, lanes.data()));
  trace.add_value(lanes);
  std::vector<std::uint32_t> indices(n);
  indices.resize(loops.select(x.data(), n, 0x3f800000U, indices.data()));
  trace.add(indices);
  std::vector<std::uint16_t> random(n + 64);
  loops.random(ops::random_stream(1, 2, 3), 7, n / 64 + 1, random.data());
  trace.add(random);
}

void trace_values(const cpu::ValueLoops& loops, std::span<const std::byte> codes, std::span<const float> x, float scale,
                  Trace& trace) {
  std::vector<float> out(x.size());
  loops.decode(codes.data(), x.size(), scale, out.data());
  trace.add(out);
  loops.difference(codes.data(), x.size(), scale, x.data(), out.data());
  trace.add(out);
  loops.add(codes.data(), x.size(), scale, 0.37F, out.data());
  trace.add(out);
  std::vector<std::int64_t> sum(x.size(), 43);
  loops.accumulate(codes.data(), x.size(), scale, 0x1p20, sum.data());
  trace.add(sum);
  trace.add_value(loops.bound(codes.data(), x.size(), scale));
}

void trace_dense(const cpu::DenseLoops& loops, std::span<const float> x, Trace& trace) {
  const std::size_t n = x.size();
  trace_values(loops.fp32, std::as_bytes(x), x, 1, trace);
  std::vector<std::byte> half(2 * n);
  trace.add_value(loops.bf16_encode(x.data(), n, half.data()));
  trace.add(half);
  trace_values(loops.bf16, half, x, 1, trace);
  trace.add_value(loops.fp16_encode(x.data(), n, half.data()));
  trace.add(half);
  trace_values(loops.fp16, half, x, 1, trace);
  std::vector<std::uint16_t> random(n);
  for (std::size_t i = 0; i < n; ++i) random[i] = ops::random_bits(ops::random_stream(1, 2, 3), i);
  for (const float most : {127.0F, 7.0F}) {
    const float scale = 1000.0F / most;
    std::vector<std::int8_t> codes(n);
    loops.round_stochastic(x.data(), n, 0x1p14F / scale, random.data(), codes.data());
    trace.add(codes);
    trace_values(loops.int8, std::as_bytes(std::span(codes)), x, scale, trace);
    loops.round_nearest(x.data(), n, 1.0F / scale, codes.data());
    trace.add(codes);
    std::vector<std::byte> nibbles((n + 1) / 2);
    loops.pack_nibbles(codes.data(), n, nibbles.data());
    trace.add(nibbles);
    trace.add_value(loops.lowest_nibble(nibbles.data(), nibbles.size()));
    trace_values(loops.int4, nibbles, x, scale, trace);
  }
}

void trace_ring(const cpu::RingLoops& loops, const cpu::DenseLoops& dense, std::span<const float> x, Trace& trace) {
  const std::size_t n = x.size();
  std::vector<std::uint16_t> random(n);
  for (std::size_t i = 0; i < n; ++i) random[i] = ops::random_bits(ops::random_stream(1, 2, 3), i);
  const std::tuple<const cpu::RingWidth*, const cpu::ValueLoops*, std::size_t> widths[] = {
      {&loops.one, &dense.int8, 1}, {&loops.two, &dense.int16, 2}, {&loops.three, &dense.int24, 3}};
  for (const auto& [width, values, bytes] : widths) {
    const auto most = static_cast<float>((1 << (8 * bytes - 1)) - 1);
    std::vector<std::byte> codes(n * bytes);
    width->nearest(x.data(), n, most / 512, most, codes.data());
    trace.add(codes);
    trace_values(*values, codes, x, 0x1p-9F, trace);
    width->stochastic(x.data(), n, most / 512, most, random.data(), codes.data());
    trace.add(codes);
    trace.add_value(width->most(codes.data(), n));
    trace_values(*values, codes, x, 0x1p-9F, trace);
  }
  trace.add_value(loops.most_nibble(std::as_bytes(x).data(), n));
}

void trace_updates(const cpu::Loops& loops, std::span<const float> x, Trace& trace) {
  const std::size_t n = x.size();
  std::vector<float> y(x.rbegin(), x.rend());
  std::vector<float> out(n);
  loops.difference(x.data(), y.data(), n, out.data());
  trace.add(out);
  loops.pseudo_gradient(x.data(), y.data(), nullptr, n, out.data());
  trace.add(out);
  loops.pseudo_gradient(x.data(), y.data(), x.data(), n, out.data());
  trace.add(out);
  std::vector<double> sum(n, 0.25);
  loops.weighted_add(x.data(), n, 12'345.0, sum.data());
  loops.divide(sum.data(), n, 777.0, out.data());
  trace.add(out);
  loops.sgd(0.3, x.data(), n, out.data());
  trace.add(out);
  loops.momentum(0.3, 0.9, x.data(), n, y.data(), out.data());
  trace.add(y);
  trace.add(out);
}

TEST(Targets, AgreeBitForBitOnEveryLoop) {
  for (const std::size_t size : kSizes) {
    for (const auto& x : {test_values::normals(size, size), test_values::adversarial(size, size, 1000.0F)}) {
      std::string expected;
      for (const cpu::Target target : cpu::supported_targets()) {
        Trace trace;
        trace_fixed(cpu::loops(target), x, trace);
        trace_scans(cpu::loops(target), x, trace);
        trace_dense(cpu::dense_loops(target), x, trace);
        trace_ring(cpu::ring_loops(target), cpu::dense_loops(target), x, trace);
        trace_updates(cpu::loops(target), x, trace);
        if (target == cpu::Target::kBaseline) expected = trace.text();
        ASSERT_TRUE(trace.text() == expected) << cpu::target_name(target) << ", " << size << " values";
      }
    }
  }
}

TEST(Targets, AreNamedAndOrdered) {
  const auto targets = cpu::supported_targets();
  ASSERT_FALSE(targets.empty());
  EXPECT_EQ(targets.front(), cpu::Target::kBaseline);
  EXPECT_EQ(targets.back(), cpu::best_target());
  EXPECT_EQ(cpu::target_name(cpu::Target::kAvx512), "avx512");
}

}  // namespace
}  // namespace fluvial::kernels

#include "cli/bench_update.h"

#include <cmath>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/rng.h"

namespace fluvial::cli {
namespace {

// A finaliser of 32-bit hashes with low bias (C. Wellons, "Prospecting for Hash Functions", 2018): a counter in, a
// random-looking word out, in a loop that vectorises.
std::uint32_t mix(std::uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352dU;
  x ^= x >> 15;
  x *= 0x846ca68bU;
  x ^= x >> 16;
  return x;
}

std::uint32_t key_of(const UpdateStream& stream) {
  Rng rng(stream.seed);
  Rng second(rng.next() ^ stream.round);
  return static_cast<std::uint32_t>(Rng(second.next() ^ stream.site_index).next());
}

float value_at(std::uint32_t key, std::uint32_t coordinate) {
  const std::uint32_t word = mix(coordinate ^ key);
  const auto centred = static_cast<std::int32_t>(word) >> 8;  // 24 bits: exact in fp32
  const float uniform = static_cast<float>(centred) * (0.01F * 0x1p-23F);
  const float scaled = (word & 0xfffU) == 0x7ffU ? uniform * 64.0F : uniform;
  return (word & 0x3fU) == 0 ? 0.0F : scaled;
}

}  // namespace

void fill_update(const UpdateStream& stream, std::span<float> out) {
  const std::uint32_t key = key_of(stream);
  const auto count = static_cast<std::uint32_t>(out.size());
  for (std::uint32_t i = 0; i < count; ++i) out[i] = value_at(key, i);
}

void apply_update(const UpdateStream& stream, std::span<const float> base, std::span<float> local) {
  FLUVIAL_CHECK(base.size() == local.size(), "a local model has the length of its base");
  const std::uint32_t key = key_of(stream);
  const auto count = static_cast<std::uint32_t>(base.size());
  for (std::uint32_t i = 0; i < count; ++i) local[i] = base[i] - value_at(key, i);
}

std::int64_t bench_integer(const UpdateStream& stream, std::size_t k) {
  return static_cast<std::int64_t>(stream.round * 8 + (stream.site_index * 5 + k * 3) % 11);
}

round::Schema bench_schema(std::uint64_t params, bool matrices) {
  std::vector<round::Tensor> tensors = {{"w", round::DType::kF32, {params}}};
  const auto rows = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(params)));
  if (matrices && rows > 1) {
    tensors = {{"w", round::DType::kF32, {rows, rows - 1}}, {"b", round::DType::kF32, {params - rows * (rows - 1)}}};
  }
  Result<round::Schema> made = round::Schema::make(std::move(tensors));
  FLUVIAL_CHECK(made.ok(), "a model that fits the bounds");
  return std::move(*made);
}

void fill_model(std::uint64_t seed, std::span<float> out) { fill_update({.seed = seed}, out); }

std::uint64_t bench_weight(std::uint64_t site_index) { return 1 + site_index * 137 % kBenchWeightMax; }

}  // namespace fluvial::cli

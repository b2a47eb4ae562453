// Synthetic updates: cheap, deterministic, a function of (seed, round, site, coordinate) alone, so that whoever checks
// a sum can make them again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/round/schema.h"

namespace fluvial::cli {

struct UpdateStream {
  std::uint64_t seed = 1;
  std::uint64_t round = 0;
  std::uint64_t site_index = 0;  // 1, 2, ...
};

// Uniform in +-0.01, one value in 64 exactly zero, one in 4096 up to 64 times as large.
void fill_update(const UpdateStream& stream, std::span<float> out);
// local = base - update, each rounded to fp32: what a worker hands back.
void apply_update(const UpdateStream& stream, std::span<const float> base, std::span<float> local);
// What the site says for the k-th integer of the model: its greatest so far is the committed one.
std::int64_t bench_integer(const UpdateStream& stream, std::size_t k);
// The initial model.
void fill_model(std::uint64_t seed, std::span<float> out);
// Of so many values: one tensor of one dimension, or with `matrices`, for codecs that look for them, a matrix nearly as
// wide as it is high and behind it what is left.
round::Schema bench_schema(std::uint64_t params, bool matrices);

inline constexpr std::uint64_t kBenchWeightMax = 1'000;
std::uint64_t bench_weight(std::uint64_t site_index);  // 1 to kBenchWeightMax, another for each of many sites

}  // namespace fluvial::cli

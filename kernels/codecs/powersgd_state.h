// The warm start and the basis of PowerSGD (powersgd.h). Internal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/bytes.h"
#include "kernels/cpu/lowrank_loops.h"

namespace fluvial::kernels::powersgd {

inline constexpr std::size_t kStateHeaderBytes = 32;
inline constexpr std::uint32_t kVersion = 1;

bool is_new(ByteSpan state);  // all zero in its header
std::span<const float> factors_of(ByteSpan state);

// The columns of `p` (rank of them, one after the other), orthonormal: for each k in order, in fp64, its projections on
// the columns before are subtracted one after the other; the rest is divided by its norm and rounded to fp32, or is
// zero when the norm is at most ops::kDependent times the first one. `scratch` and `out` are as large as `p`, which is
// finite.
void orthonormalise(std::span<const float> p, std::size_t rank, const cpu::LowrankLoops& loops,
                    std::span<double> scratch, std::span<float> out);

}  // namespace fluvial::kernels::powersgd

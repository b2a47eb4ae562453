// The workers' vectors of one site, averaged.
#pragma once

#include <cstdint>
#include <span>

#include "edge/reduce/schedule.h"

namespace fluvial::edge {

// out = the mean of the vectors by their weights. kDirect gives the bits of kernels::weighted_mean; the others round
// each partial sum to fp32. On the calling thread: a model is reduced chunk by chunk, several at a time, and partial
// sums take a chunk each, at most as many as there are vectors. kInvalidArgument: not 1 to kRanksMax vectors, or a
// weight that is 0 or 2^29 and more.
Status reduce_mean(Algorithm algorithm, std::span<const std::span<const float>> vectors,
                   std::span<const std::uint32_t> weights, std::span<float> out);

}  // namespace fluvial::edge

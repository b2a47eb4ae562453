// Majority vote of signs (signSGD with majority vote: Bernstein, Wang, Azizzadenesheli, Anandkumar, ICML 2018;
// Bernstein, Zhao, Azizzadenesheli, Anandkumar, ICLR 2019). Sites send codec "sign:mode=vote"; every node adds the
// votes, weighted, to its int64 sum with scale_bits 0 (decode_accumulate_chunk) and sends the sum up as a partial chunk
// (fixed.h), one byte a value for up to 127 unit votes. Integers add up exactly, so the tree's shape does not matter.
// The majority is taken once, at the root: a majority of majorities is something else.
//
// A vote does not say how large a value is, and error feedback gives it no bound: a vote's update is +-1 (times the
// learning rate), whatever the gradient.
#pragma once

#include <cstdint>
#include <span>

namespace fluvial::kernels {

// out = the sign of the sum: +1, -1, or 0 for a tie. As many of each (checked). Thread safe; the same on every machine.
void majority(std::span<const std::int64_t> sum, std::span<float> out);

}  // namespace fluvial::kernels

// The oracle's codec ring.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/base/bytes.h"

namespace fluvial::kernels::reference {

// As reference.h's decode(), for the bytes of ring.
std::optional<std::vector<double>> decode_ring(ByteSpan bytes, std::size_t value_count);

// The fraction bits of ring:bits=BITS,max=MAX: the most with which every value up to max fits, by trying.
int ring_fraction_bits(std::uint32_t bits, double max);

// The code of a value, by the rule of docs/formats/codecs-ring.md in exact fp64. With `random`, its 16 random bits,
// the rounding is stochastic.
std::int64_t ring_code(float value, std::uint32_t bits, int fraction_bits, std::optional<std::uint32_t> random);

}  // namespace fluvial::kernels::reference
